// Orders of contexts and MCPCs in the map, by key: [name, function that returns all of them in this order].
{
  const { data } = mcpca;
  const given = data.ofContexts;
  const totals = data.loadings.map((row) => row.reduce((a, b) => a + b, 0));
  const by = (n, value) => mcpca.sortedBy(mcpca.range(n), value);
  const collator = new Intl.Collator("en", { numeric: true });
  mcpca.rowOrders = {
    given: ["order given", () => mcpca.range(mcpca.k)],
    cluster: ["similarity", () => data.orders.contexts],
    name: ["name", () => mcpca.range(mcpca.k).sort((a, b) => collator.compare(data.contexts[a], data.contexts[b]))],
    chosen: ["chosen MCPC", () => by(mcpca.k, (i) => data.loadings[i][mcpca.chosen.mcpc])],
    total: ["total loading", () => by(mcpca.k, (i) => totals[i])],
    explained: ["quality of fit", () => by(mcpca.k, (i) => given.explained[i])],
    rows: ["number of rows", () => by(mcpca.k, (i) => given.rows[i])],
  };
  mcpca.columnOrders = {
    given: ["total variance", () => mcpca.range(mcpca.r)],
    cluster: ["similarity", () => data.orders.mcpcs],
    chosen: ["chosen context", () => by(mcpca.r, (j) => data.loadings[mcpca.chosen.context][j])],
    carrying: ["contexts with it", () => by(mcpca.r, (j) => data.ofMcpcs.carrying[j])],
  };

  // Which MCPCs a text finds: by name, by number, or by a feature at one of the poles.
  mcpca.findMcpc = (text) => {
    const { names, poles } = data.features;
    const features = new Set(mcpca.range(names.length).filter((f) => names[f].toLowerCase().includes(text)));
    const byName = (j) => data.mcpcs[j].toLowerCase().includes(text),
      byFeature = (j) => ["positive", "negative"].some((end) => poles[j][end].features.some((f) => features.has(f)));
    const found = (j) => byName(j) || byFeature(j);
    // What matched, as the end of a sentence.
    const said = [];
    if (mcpca.range(mcpca.r).some(byName)) said.push(`\u201c${mcpca.short(text, 30)}\u201d in their name`);
    if (features.size === 1) said.push(`${mcpca.short(names[[...features][0]])} at a pole`);
    if (features.size > 1)
      said.push(
        `one of ${mcpca.count(features.size)} features at a pole that have \u201c${mcpca.short(text, 30)}\u201d in their names`,
      );
    found.words = said.length ? `those with ${said.join(", or ")}` : "";
    return found;
  };

  if (!data.orders.contexts) delete mcpca.rowOrders.cluster;
  if (!given.rows) delete mcpca.rowOrders.rows;
}
