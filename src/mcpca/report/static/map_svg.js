// The map as it is sorted and filtered, all of it, as vectors: names, numbers, marks and what is known of the contexts.
{
  const { data, svg } = mcpca;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
  const MARGIN = 16,
    NAME = 6.3, // pixels across for a letter
    LONGEST = 40, // letters of a name
    STRIP = 14,
    MANY = 60, // rows from which they are lower
    MOST_VALUES = 12; // of a strip

  const text = (x, y, words, more = {}) =>
    svg("text", { x, y, "font-size": 11, fill: mcpca.colour("text"), ...more }, words);
  const middle = { "dominant-baseline": "central" };

  const mark = (key, at) => {
    const node = svg("g", { "stroke-width": 1.4 });
    for (const [d, way, colour] of mcpca.marks.pieces(key, at))
      node.append(svg("path", { d, fill: "none", [way]: mcpca.colour(colour) }));
    return node;
  };
  // What a strip holds, [words, colour] in the order of the words; of many, as of numbers, some from first to last.
  const collator = new Intl.Collator("en", { numeric: true });
  const valuesOf = ({ words, colour }, rows) => {
    const found = [...new Map(rows.map((i) => [words(i), colour(i)]))].sort((a, b) => collator.compare(a[0], b[0]));
    const shown =
      found.length > MOST_VALUES ? mcpca.range(5).map((at) => found[Math.round((at * (found.length - 1)) / 4)]) : found;
    return shown.map(([text, of]) => [mcpca.short(text, 24), of]);
  };

  mcpca.drawMap = () => {
    const { rows, columns } = mcpca.map.view,
      { beside, shade, scale, few } = mcpca.map;
    const marks = mcpca.marks.tested;
    const rowHeight = rows.length > MANY ? 12 : 18,
      size = rows.length > MANY ? 9 : 11;
    const columnWidth = few() ? 46 : 22;
    const names = rows.map((i) => mcpca.contextName(i, LONGEST)),
      heads = columns.map((j) => mcpca.names.given(j));
    const longest = (texts) => Math.max(...texts.map((name) => [...name].length), 4) * NAME;
    const left = MARGIN + longest([...names, ...marks.map(mcpca.marks.titles)]) + 8,
      x0 = left + STRIP * beside.length + (beside.length ? 4 : 0);
    const titles = beside.map(({ title }) => mcpca.short(title, 24));
    const named = heads.some((name) => name !== "");
    const above = Math.max(named ? longest(heads) * 0.95 : 0, titles.length ? longest(titles) * 0.95 - 16 : 0);
    const top = MARGIN + 22 + above,
      y0 = top + 20 + STRIP * marks.length;
    const [x1, y1] = [x0 + columnWidth * columns.length, y0 + rowHeight * rows.length];
    const x = (b) => x0 + (b + 0.5) * columnWidth,
      y = (a) => y0 + (a + 0.5) * rowHeight;
    const group = (id, ...children) => svg("g", { id }, ...children);

    const cells = rows.flatMap((i, a) =>
      columns.map((j, b) => {
        const cell = svg("rect", {
          x: x0 + b * columnWidth,
          y: y0 + a * rowHeight,
          width: columnWidth - 1,
          height: rowHeight - 1,
          fill: shade(i, j).colour,
        });
        const words = `${mcpca.contextName(i, 60)}, ${mcpca.mcpcName(j)}: ${mcpca.number(data.loadings[i][j])}`;
        cell.append(svg("title", {}, words));
        return cell;
      }),
    );
    const written = few()
      ? rows.flatMap((i, a) =>
          columns
            .map((j, b) => [j, b])
            .filter(([j]) => shade(i, j).shown)
            .map(([j, b]) =>
              text(x(b) - 0.5, y(a), mcpca.number(data.loadings[i][j], 3), {
                "text-anchor": "middle",
                fill: shade(i, j).ink,
                ...middle,
              }),
            ),
        )
      : [];
    const rowNames = names.map((name, a) =>
      text(left - 6, y(a), name, {
        "text-anchor": "end",
        "font-size": size,
        ...middle,
      }),
    );
    const columnNames = columns.map((j, b) => text(x(b), top + 12, String(j + 1), { "text-anchor": "middle" }));
    const givenNames = columns.flatMap((j, b) =>
      heads[b] === ""
        ? []
        : [text(0, 0, heads[b], { transform: `translate(${x(b)} ${top - 4}) rotate(-90)`, ...middle })],
    );
    const markNames = ["MCPC", ...marks.map(mcpca.marks.titles)].map((title, line) =>
      text(left - 6, line ? top + 20 + (line - 0.5) * STRIP : top + 12, title, {
        "text-anchor": "end",
        "font-size": 10,
        fill: mcpca.colour("muted"),
        ...(line ? middle : {}),
      }),
    );
    const markShapes = marks.flatMap((key, line) =>
      columns.map((j, b) => {
        const node = mark(key, mcpca.marks.level(key, j));
        node.setAttribute("transform", `translate(${x(b)} ${top + 20 + (line + 0.5) * STRIP})`);
        return node;
      }),
    );
    const strips = beside.flatMap(({ colour, words }, at) =>
      rows.map((i, a) => {
        const cell = svg("rect", {
          x: left + at * STRIP,
          y: y0 + a * rowHeight,
          width: STRIP - 2,
          height: rowHeight - 1,
          fill: colour(i) ?? "none",
        });
        cell.append(svg("title", {}, words(i)));
        return cell;
      }),
    );
    const stripNames = titles.map((title, at) =>
      text(0, 0, title, {
        transform: `translate(${left + (at + 0.5) * STRIP - 1} ${y0 - 5}) rotate(-90)`,
        "font-size": 10,
        fill: mcpca.colour("muted"),
        ...middle,
      }),
    );
    const { stops, most, what } = scale();
    const bar = svg("linearGradient", { id: "ramp" });
    stops.forEach((colour, at) =>
      bar.append(svg("stop", { offset: `${(100 * at) / (stops.length - 1)}%`, "stop-color": colour })),
    );
    let below = y1 + 22;
    const ramp = [
      svg("defs", {}, bar),
      text(left, below, "0", { ...middle, "text-anchor": "end" }),
      svg("rect", {
        x: left + 6,
        y: below - 5,
        width: 120,
        height: 10,
        fill: "url(#ramp)",
        stroke: mcpca.colour("line"),
      }),
      text(left + 132, below, `${most}  ${what}`, middle),
    ];
    let across = left + 140 + NAME * (most.length + what.length + 2);
    // Lines of what marks and strips stand for: a shape, words, and so on, side by side.
    const line = (entries) => {
      let at = left - 6;
      below += 20;
      return entries.flatMap(([shape, words]) => {
        if (shape) shape.setAttribute("transform", `translate(${at + 12} ${below})`);
        const said = text(at + (shape ? 22 : 6), below, words, middle);
        at += (shape ? 32 : 16) + NAME * [...words].length;
        across = Math.max(across, at);
        return shape ? [shape, said] : [said];
      });
    };
    const swatch = (colour) =>
      svg("g", {}, svg("rect", { x: -5, y: -5, width: 10, height: 10, fill: colour ?? "none" }));
    const explained = [
      ...marks.flatMap((key) => line(mcpca.marks.legendEntries(key).map(([at, words]) => [mark(key, at), words]))),
      ...beside.flatMap((strip, at) =>
        line([[null, `${titles[at]}:`], ...valuesOf(strip, rows).map(([words, colour]) => [swatch(colour), words])]),
      ),
    ];
    const width = Math.max(x1, across) + MARGIN;
    const [w, h] = [width, below + 14 + MARGIN].map(Math.ceil);
    return svg(
      "svg",
      { xmlns: "http://www.w3.org/2000/svg", width: w, height: h, viewBox: `0 0 ${w} ${h}`, "font-family": FONT },
      svg("rect", { width: w, height: h, fill: "#ffffff" }),
      group("cells", ...cells),
      group("numbers", ...written),
      group("contexts", ...rowNames),
      group("mcpcs", ...columnNames),
      group("names", ...givenNames),
      group("marks", ...markNames, ...markShapes),
      group("known", ...stripNames, ...strips),
      group("scale", ...ramp),
      group("legend", ...explained),
    );
  };
}
