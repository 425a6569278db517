"use strict";
// The data of the page, and how its names and numbers are written.
// Names come from the user's data and may hold anything: they reach the page only as text nodes (dom.js) and, escaped,
// as labels of Plotly (forPlot).

const mcpca = {};
{
  const data = JSON.parse(document.getElementById("data").textContent);
  mcpca.data = data;
  mcpca.k = data.contexts.length;
  mcpca.r = data.mcpcs.length;

  // Characters that are not seen, or that turn the direction of the text around them, are written as their code.
  const HIDDEN =
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  const code = (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  mcpca.visible = (text) => (text === "" ? "(empty)" : text.replace(HIDDEN, code));

  // At most `length` characters; what is cut off is told by an ellipsis.
  mcpca.short = (text, length = 40) => {
    const characters = [...mcpca.visible(text.slice(0, 4 * length))];
    const whole = characters.length <= length && text.length <= 4 * length;
    return whole ? characters.join("") : characters.slice(0, length - 1).join("") + "\u2026";
  };

  mcpca.contextName = (i, length) => mcpca.short(data.contexts[i], length);
  mcpca.mcpcName = (j, length) => mcpca.short(data.mcpcs[j], length);

  // Plotly reads some tags and entities in labels. Isolates keep right-to-left names from reordering what is beside.
  const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
  mcpca.forPlot = (text, length = 28) =>
    "\u2068" + mcpca.short(text, length).replace(/[&<>]/g, (c) => ENTITIES[c]) + "\u2069";
  mcpca.mcpcPlot = (j) => mcpca.forPlot(data.mcpcs[j], 40); // with the name that the reader gave it

  mcpca.number = (value, digits = 4) => {
    if (value === null || value === undefined) return "not known";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 2);
    return String(Number(value.toPrecision(digits)));
  };
  mcpca.percent = (value) =>
    value === null || value === undefined
      ? "not known"
      : `${(100 * value).toFixed(Math.abs(value) < 0.1 || (value > 0.99 && value < 1) ? 1 : 0)}%`;
  mcpca.count = (value) => value.toLocaleString("en-GB");
  mcpca.many = (n, what) => `${mcpca.count(n)} ${what}${n === 1 ? "" : "s"}`;

  // A matrix packed as 16-bit integers: an array of its columns, decoded when it is first asked for.
  const decoded = new Map();
  mcpca.columns = (matrix) => {
    if (!decoded.has(matrix)) {
      const bytes = atob(matrix.data);
      const m = matrix.scales.length;
      const n = m ? bytes.length / 2 / m : 0;
      const columns = matrix.scales.map(() => new Float64Array(n));
      for (let at = 0; at < n * m; at++) {
        const raw = bytes.charCodeAt(2 * at) | (bytes.charCodeAt(2 * at + 1) << 8);
        columns[at % m][Math.floor(at / m)] = ((raw << 16) >> 16) * matrix.scales[at % m];
      }
      decoded.set(matrix, columns);
    }
    return decoded.get(matrix);
  };

  mcpca.range = (n) => Array.from({ length: n }, (_, i) => i);
  mcpca.sortedBy = (indices, value) =>
    [...indices].sort((a, b) => {
      const x = value(a),
        y = value(b);
      if (x === y) return a - b;
      if (x === null) return 1; // what is not known comes last
      if (y === null) return -1;
      return x < y ? 1 : -1;
    });

  // Loadings of an MCPC and its largest one.
  mcpca.column = (j) => data.loadings.map((row) => row[j]);
  mcpca.largest = mcpca.range(mcpca.r).map((j) => data.loadings.reduce((most, row) => Math.max(most, row[j]), 0));

  mcpca.cosine = (a, b) => {
    let ab = 0,
      aa = 0,
      bb = 0;
    for (let j = 0; j < a.length; j++) {
      ab += a[j] * b[j];
      aa += a[j] * a[j];
      bb += b[j] * b[j];
    }
    return aa > 0 && bb > 0 ? ab / Math.sqrt(aa * bb) : null;
  };
}
