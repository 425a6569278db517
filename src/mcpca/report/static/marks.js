// Is it real, at a glance: what is known of every MCPC (does it come back, does it differ between contexts, in how many
// contexts is it present), as marks with shapes and words. What was not computed is "not tested", never a "no".
{
  const { el, data, number } = mcpca;
  const { replicability, dependence } = data.ofMcpcs;
  const { presence } = data;
  const isPresent = (row, j) => row[j] !== null && row[j] <= presence.alpha;
  const places = presence
    ? mcpca.range(mcpca.r).map((j) => presence.adjusted.filter((row) => isPresent(row, j)).length)
    : null;
  const known = (values, j) => values[j] !== null && values[j] !== undefined;

  // Around 0, four units to each side.
  const CIRCLE = "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z",
    DIAMOND = "M0 -4.8L4.8 0L0 4.8L-4.8 0Z",
    BOX = "M-4 -4.5H4V4.5H-4Z",
    DASH = "M-2 0H2";

  // `level` is null (not known), or from 0 (no) to 1 (yes); `words` are a part of a sentence.
  const MARKS = {
    back: {
      title: "comes back",
      tested: Boolean(replicability),
      path: CIRCLE,
      colours: ["no", "yes"],
      legend: ["does not come back", `comes back in halves of the ${replicability ? replicability.by : "rows"}`],
      level: (j) => (replicability && known(replicability.mean, j) ? Number(replicability.replicates[j]) : null),
      words: (j, level) =>
        level === null
          ? replicability
            ? "not known whether it comes back: halves have too few rows"
            : "not tested whether it comes back"
          : `${level ? "comes back" : "does not come back"} with |cos| ${replicability.said[j]} ` +
            `(mean of ${replicability.cosines[j].length} splits, more than ${replicability.threshold} is required)`,
    },
    differs: {
      title: "differs",
      tested: Boolean(dependence),
      path: DIAMOND,
      colours: ["muted", "yes"],
      legend: ["in all contexts alike", "differs between contexts"],
      level: (j) => (dependence && known(dependence.q, j) ? Number(dependence.dependent[j]) : null),
      words: (j, level) =>
        level === null
          ? "not tested whether it differs between contexts"
          : (level ? "differs between contexts" : "no difference between contexts is seen") +
            (level && dependence.outcome === "scale" ? ", as all do by their scale," : "") +
            ` (q = ${number(dependence.q[j], 2)})`,
    },
    present: {
      title: "present",
      tested: Boolean(presence),
      path: BOX,
      colours: ["data", "data"],
      legend: [null, "share of the contexts in which it is present"],
      level: (j) => (presence ? places[j] / mcpca.k : null),
      words: (j, level) =>
        level === null
          ? "not tested where it is present"
          : `${places[j] ? "present" : "not shown to be present"} in ${places[j] ? mcpca.count(places[j]) : "any"} of ` +
            `${mcpca.many(mcpca.k, "context")} (adjusted p up to ${presence.alpha})`,
    },
  };
  const level = (key, j) => MARKS[key].level(j);
  const words = (key, j) => MARKS[key].words(j, level(key, j));
  const tested = Object.keys(MARKS).filter((key) => MARKS[key].tested);

  // One mark as pieces [path, "fill" or "stroke", name of a colour]: a shape full by as much as the level.
  const pieces = (key, at) => {
    const { path, colours } = MARKS[key];
    if (at === null) return [[DASH, "stroke", "muted"]];
    const colour = colours[at > 0 ? 1 : 0];
    const full = at === 1 ? path : `M-4 4.5H4V${4.5 - Math.max(9 * at, 1)}H-4Z`;
    return [...(at > 0 ? [[full, "fill", colour]] : []), [path, "stroke", colour]];
  };

  // On a canvas, with its middle at x, y and of a size in pixels.
  const paint = (c, key, j, x, y, size) => {
    c.save();
    c.translate(x, y);
    c.scale(size / 10, size / 10);
    c.lineWidth = 1.6;
    for (const [path, way, colour] of pieces(key, level(key, j))) {
      c[`${way}Style`] = mcpca.colour(colour);
      c[way](new Path2D(path));
    }
    c.restore();
  };

  // The same as an element of the page; its words are beside it.
  const SVG = "http://www.w3.org/2000/svg";
  const picture = (key, at) => {
    const node = document.createElementNS(SVG, "svg");
    node.setAttribute("viewBox", "-6 -6 12 12");
    node.setAttribute("class", "mark");
    node.setAttribute("aria-hidden", "true");
    for (const [path, way, colour] of pieces(key, at)) {
      const shape = document.createElementNS(SVG, "path");
      shape.setAttribute("d", path);
      shape.setAttribute("style", `fill:none;stroke-width:1.6;${way}:var(--${colour})`);
      node.append(shape);
    }
    return node;
  };
  // For a table: a mark and a word or two, with the whole sentence where the pointer rests.
  const cell = (key, j) => {
    const at = level(key, j);
    const share = () => `${mcpca.count(places[j])} of ${mcpca.count(mcpca.k)}`;
    const unknown = MARKS[key].tested ? "not known" : "not tested";
    const text = at === null ? unknown : key === "present" ? share() : at ? "yes" : "no";
    return el("span", { class: "marked-cell", title: words(key, j) }, picture(key, at), text);
  };

  const QUESTIONS = {
    back: "whether MCPCs come back",
    differs: "whether they differ between contexts",
    present: "in which contexts they are present",
  };
  const missing = Object.keys(MARKS).filter((key) => !MARKS[key].tested);
  const untested = missing.length ? `Not tested: ${missing.map((key) => QUESTIONS[key]).join(", ")}.` : "";

  const legend = () => {
    const entries = tested.flatMap((key) =>
      [1, 0]
        .filter((at) => MARKS[key].legend[at])
        .map((at) => el("span", {}, picture(key, key === "present" ? 0.6 : at), MARKS[key].legend[at])),
    );
    if (untested) entries.push(el("span", { class: "muted" }, untested));
    return el("div", { id: "marks-legend", class: "legend marks" }, ...entries);
  };

  // What the legend says of a mark: [level, words].
  const legendEntries = (key) =>
    [1, 0].filter((at) => MARKS[key].legend[at]).map((at) => [key === "present" ? 0.6 : at, MARKS[key].legend[at]]);

  // Which MCPCs are shown: [text, tests that are needed, which].
  const FILTERS = {
    all: ["all", [], () => true, ""],
    back: ["that come back", ["back"], (j) => level("back", j) === 1, "those that come back"],
    differ: ["that differ", ["differs"], (j) => level("differs", j) === 1, "those that differ between contexts"],
    both: [
      "that do both",
      ["back", "differs"],
      (j) => level("back", j) === 1 && level("differs", j) === 1,
      "those that come back and differ between contexts",
    ],
    present: ["that are present", ["present"], (j) => level("present", j) > 0, "those present in some context"],
  };
  const fillFilter = (select) =>
    select.replaceChildren(
      ...Object.entries(FILTERS).map(([value, [text, needed, , title]]) => {
        const lacking = needed.some((key) => !MARKS[key].tested);
        return el("option", { value, disabled: lacking, title }, lacking ? `${text} (not tested)` : text);
      }),
    );

  const titles = (key) => MARKS[key].title;
  mcpca.marks = { tested, untested, level, paint, pieces, cell, legend, legendEntries, fillFilter, FILTERS, titles };
  // All that is known, in one line: for tips and for what is spoken.
  mcpca.marks.words = (j) => Object.keys(MARKS).map((key) => words(key, j));
}
