// Saving: tables as CSV, charts and the map as SVG (vectors, with text as text) and PNG, on white paper.
{
  const { el, data } = mcpca;
  const MOST_BYTES = 120; // of the name of a file
  const WIDTH = 760; // of a chart
  const DENSE = 2; // pixels of a PNG for one of the page
  const MOST_PIXELS = 16000; // along a side of a PNG, where browsers end

  // Names of files: the title, what it is, of which MCPC and context. Letters and digits of any script, and hyphens,
  // which every system takes.
  const safe = (text) =>
    mcpca
      .short(text, 60)
      .normalize("NFC")
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-+|-+$/g, "");
  mcpca.fileName = (parts, extension) => {
    const words = [data.title, ...parts]
      .filter((text) => text !== "")
      .map(safe)
      .filter((text) => text !== "");
    const letters = [...(words.join("_") || "mcpca")];
    while (new TextEncoder().encode(letters.join("")).length > MOST_BYTES) letters.pop();
    const name = letters.join("").replace(/[-_]+$/, "");
    return `${/^(con|prn|aux|nul|com\d|lpt\d)$/i.test(name) ? `mcpca_${name}` : name}.${extension}`;
  };

  mcpca.saveBlob = (file, blob) => {
    const url = URL.createObjectURL(blob);
    const link = el("a", { href: url, download: file });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    mcpca.announce(`Saved ${file}.`);
  };
  // A table: its file is told apart from those of other reports by the title.
  mcpca.save = (file, text) => {
    const [, name, extension] = /^(.*)\.(\w+)$/.exec(file);
    mcpca.saveBlob(mcpca.fileName([name], extension), new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
  };

  // Text that may be in XML, whatever the name: no control characters (written by their codes) and no half characters.
  const SVG = "http://www.w3.org/2000/svg";
  mcpca.svgText = (text) => mcpca.visible(text).replace(/[\ufffe\uffff]|\p{Cs}/gu, "\ufffd");
  mcpca.svg = (tag, attributes = {}, ...children) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, String(value));
    node.append(...children.map((child) => (typeof child === "string" ? mcpca.svgText(child) : child)));
    return node;
  };
  const written = (node) => `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(node)}\n`;

  // Colours of white paper, whatever the page has now.
  mcpca.inLight = (act) => {
    const root = document.documentElement,
      theme = root.dataset.theme;
    root.dataset.theme = "light";
    try {
      return act();
    } finally {
      root.dataset.theme = theme;
    }
  };

  const withTitle = (node, title) => {
    node.prepend(mcpca.svg("title", {}, title));
    return written(node);
  };
  // SVG of a chart as text; see charts.js for its figure.
  mcpca.chartSvg = async (node) => {
    const { traces, layout, label } = mcpca.inLight(() => mcpca.figure(node, WIDTH));
    const { width, height } = layout;
    const text = await Plotly.toImage({ data: traces, layout }, { format: "svg", width, height, imageDataOnly: true });
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    return withTitle(parsed, label);
  };
  mcpca.mapSvg = () =>
    withTitle(
      mcpca.inLight(() => mcpca.drawMap()),
      data.title,
    );

  // A picture of an SVG, as large as browsers can make it if twice its size is too large.
  mcpca.png = async (text) => {
    const node = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const [width, height] = ["width", "height"].map((name) => parseFloat(node.getAttribute(name)));
    const scale = Math.min(DENSE, MOST_PIXELS / Math.max(width, height));
    const image = new Image();
    const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    try {
      image.src = url;
      await image.decode();
      const canvas = el("canvas");
      [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
      const c = canvas.getContext("2d");
      c.fillStyle = "#ffffff";
      c.fillRect(0, 0, canvas.width, canvas.height);
      c.drawImage(image, 0, 0, canvas.width, canvas.height);
      return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    } finally {
      URL.revokeObjectURL(url);
    }
  };

  // Two buttons that save what `make` returns, a promise of SVG as text, in a file named by `parts()`.
  mcpca.saveButtons = (label, make, parts) => {
    const save = async (extension) => {
      const text = await make();
      const blob = extension === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await mcpca.png(text);
      if (blob) mcpca.saveBlob(mcpca.fileName(parts(), extension), blob);
      else mcpca.announce("The picture is too large for this browser; save it as SVG.");
    };
    return ["svg", "png"].map((extension) =>
      el(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": `Save ${extension.toUpperCase()}: ${label}`,
          click: () => save(extension),
        },
        `Save ${extension.toUpperCase()}`,
      ),
    );
  };
}
