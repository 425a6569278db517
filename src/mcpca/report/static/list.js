// The list of MCPCs that the map shows: one line for each, with what is known of it and the features at its poles.
{
  const { el, data, byId, marks } = mcpca;
  const TOP = 3; // features at each pole
  let place;

  const top = (j, end) =>
    data.features.poles[j][end].features.slice(0, TOP).map((f) => mcpca.short(data.features.names[f], 24));
  const poles = (j) => {
    const part = (sign, end, what) =>
      el(
        "span",
        { class: `pole ${end}`, title: `features at the ${end} pole` },
        el("span", { "aria-hidden": "true" }, sign),
        el("span", { class: "unseen" }, what),
        ...top(j, end).flatMap((name, at) => [at ? ", " : " ", el("bdi", {}, name)]),
      );
    return el("div", { class: "poles" }, part("+", "positive", "Up:"), part("\u2212", "negative", "Down:"));
  };
  const { replicability, dependence } = data.ofMcpcs;
  const columns = [
    { title: "MCPC", name: true, value: (j) => data.mcpcs[j], sort: (j) => -j },
    { title: "share", saved: "share of all loadings", value: (j) => data.ofMcpcs.share[j], percent: true },
    { title: "carried by", saved: "contexts that carry it", value: (j) => data.ofMcpcs.carrying[j] },
    replicability && {
      title: "comes back",
      saved: "comes back: mean |cos|",
      value: (j) => replicability.mean[j],
      text: (j) => marks.cell("back", j),
    },
    dependence && {
      title: "differs",
      saved: "differs between contexts: q",
      value: (j) => dependence.q[j],
      sort: (j) => (dependence.q[j] === null ? null : -dependence.q[j]),
      text: (j) => marks.cell("differs", j),
    },
    data.presence && {
      title: "present in",
      saved: "present in: number of contexts",
      value: (j) => Math.round(marks.level("present", j) * mcpca.k),
      text: (j) => marks.cell("present", j),
    },
    { title: "note", hidden: true, value: (j) => mcpca.names.note(j) },
    ...["positive", "negative"].map((end) => ({
      title: `features at the ${end} pole`,
      hidden: true,
      value: (j) => top(j, end).join(", "),
    })),
  ].filter(Boolean);
  for (const column of columns) if (column.percent) column.text = (j) => mcpca.percent(column.value(j));

  mcpca.list = {};
  mcpca.list.begin = () => {
    place = el("div");
    byId("list").append(
      el("div", { class: "title" }, el("h2", { id: "list-title" }, "MCPCs at a glance"), mcpca.backToMap()),
      el(
        "p",
        { class: "muted" },
        "Share of all loadings; number of contexts with at least half of its largest loading; below, the first features ",
        `of both poles. ${marks.untested}`,
      ),
      place,
    );
  };
  mcpca.list.show = () => {
    const rows = mcpca.range(mcpca.r).filter((j) => mcpca.map.view.columns.includes(j));
    const down = place.querySelector(".scroll")?.scrollTop ?? 0;
    place.replaceChildren(
      mcpca.table({
        caption: rows.length < mcpca.r ? `${rows.length} of ${mcpca.many(mcpca.r, "MCPC")}` : `All ${mcpca.r} MCPCs`,
        file: "mcpcs-at-a-glance.csv",
        columns,
        rows,
        below: poles,
        open: true,
        click: (j) => mcpca.choose({ mcpc: j }, "mcpc"),
        marked: (j) => j === mcpca.chosen.mcpc,
      }),
    );
    place.querySelector(".scroll").scrollTop = down;
  };
}
