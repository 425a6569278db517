// One feature: found among all of them by name, with its entry in every MCPC. See _features.py for how they are packed.
{
  const { el, data, byId, number, count } = mcpca;
  const packed = data.features.all;
  const whole = packed.written === packed.features && packed.each === mcpca.r; // all entries of all features
  const LISTED = 20, // features that match
    MOST_BARS = 30, // MCPCs in the chart; the table has all
    AROUND = 40; // characters of a name beside what matched
  const DIGITS = 3; // of entries, which are known to 0.05%
  const SIGN = 1 << 15;
  let names = null, // of the features, when they have been unpacked
    forms, // of each name, as it may be typed or pasted
    fields, // arrays of whole numbers, by their names
    coming = null, // a promise of them
    chart,
    parts;
  const state = { chosen: null };

  // Unpacking --------------------------------------------------------------------------------------------------------
  const inflated = async (text) => {
    const letters = atob(text),
      bytes = new Uint8Array(letters.length);
    for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const unpack = async () => {
    const [text, bytes] = await Promise.all([inflated(packed.names), inflated(packed.numbers)]);
    const n = packed.written * packed.each;
    let from = 0;
    fields = {};
    for (const [name, size] of packed.fields) {
      const numbers = size === 2 ? new Uint16Array(n) : new Uint32Array(n);
      for (let byte = 0; byte < size; byte++, from += n)
        for (let at = 0; at < n; at++) numbers[at] = (numbers[at] << 8) | bytes[from + at];
      fields[name] = numbers;
    }
    names = JSON.parse(new TextDecoder().decode(text));
    forms = names.map(formsOf);
  };
  // When it is first needed: the page is there before it.
  const ready = () => (coming ??= unpack());

  // Names ------------------------------------------------------------------------------------------------------------
  const fold = (text) => text.normalize("NFC").toLowerCase();
  // As it is; as the page shows it; as a table is copied; as a field takes it that has no lines.
  const formsOf = (name) => [
    ...new Set(
      [name, mcpca.visible(name), name.replace(/[\t\r\n]+/g, " "), name.replace(/[\r\n]/g, "")].map((text) =>
        fold(text).trim(),
      ),
    ),
  ];
  // What is typed, and what it stands for where it is from a saved table (an apostrophe before what looks like a
  // formula) or from a name that was cut off (an ellipsis at its end).
  const meanings = (typed) => {
    const text = fold(typed).trim();
    const found = [{ text, cut: false }];
    if (/^'+[=+\-@\s]/.test(text)) found.push({ text: text.slice(1).trim(), cut: false });
    for (const { text: long } of [...found])
      if (/.\u2026$/u.test(long)) found.push({ text: long.slice(0, -1).trim(), cut: true });
    return found.filter((meaning) => meaning.text !== "");
  };
  // 0: the same letters, 1: but for their case, 2: it begins so, 3: it contains it; 4: it does not.
  const KINDS = ["exactly this name", "this name in other letters", "begins so", "contains it"];
  const kind = (f, typed, asked) => {
    if (names[f] === typed) return 0;
    let best = 4;
    for (const { text, cut } of asked)
      for (const form of forms[f]) {
        if (form === text && !cut) best = Math.min(best, 1);
        else if (best > 2 && form.startsWith(text)) best = 2;
        else if (best > 3 && !cut && form.includes(text)) best = 3;
      }
    return best;
  };
  const matching = (typed) => {
    const asked = meanings(typed),
      found = [[], [], [], []];
    if (!asked.length) return found;
    for (let f = 0; f < names.length; f++) {
      const of = kind(f, typed, asked);
      if (of < 4) found[of].push(f);
    }
    for (const list of found) list.sort((a, b) => names[a].length - names[b].length || a - b);
    return found;
  };
  // The name with what matched in it marked, and cut off around that where it is long.
  const marked = (f, typed) => {
    const shown = mcpca.visible(names[f]),
      small = fold(shown);
    const hit = meanings(typed).find(({ text }) => small.length === shown.length && small.includes(text));
    if (!hit) return mcpca.nameNode(names[f], 2 * AROUND);
    const [from, to] = [small.indexOf(hit.text), small.indexOf(hit.text) + hit.text.length];
    const start = Math.max(from - AROUND, 0),
      end = Math.min(to, from + 2 * AROUND);
    return el(
      "bdi",
      {},
      (start ? "\u2026" : "") + shown.slice(start, from),
      el("mark", {}, shown.slice(from, end)),
      shown.slice(end, end + AROUND) + (end + AROUND < shown.length ? "\u2026" : ""),
    );
  };

  // Numbers ----------------------------------------------------------------------------------------------------------
  const decoded = (code, largest, step) =>
    (code & SIGN ? -1 : 1) * (code & (SIGN - 1) ? largest * Math.exp(-step * ((code & (SIGN - 1)) - 1)) : 0);
  const smaller = (a, b) => (a &= SIGN - 1) !== (b &= SIGN - 1) && (a === 0 || (b !== 0 && a > b)); // |a| < |b|
  // Of all features, those whose entry in this MCPC is smaller in size.
  const countSmaller = (at, j) => {
    if (fields.smaller) return fields.smaller[at];
    let n = 0;
    for (let f = j; f < fields.entry.length; f += packed.each) n += smaller(fields.entry[f], fields.entry[at]);
    return n;
  };
  const places = Math.max(Math.ceil(Math.log10(packed.features)) - 2, 0); // so that the largest is not at 100%
  const rounded = (value, digits) => Number(value.toPrecision(digits));

  // One line for each MCPC, the largest entry first. A weight of the scores is a sum over the entries: its error
  // follows from theirs, and it has as many digits as are known.
  const entriesOf = (f) => {
    const lines = mcpca.range(packed.each).map((e) => {
      const at = f * packed.each + e,
        j = fields.mcpc ? fields.mcpc[at] : e;
      const entry = decoded(fields.entry[at], packed.largest[j], packed.step[j]);
      return { j, at, entry, percentile: (100 * countSmaller(at, j)) / packed.features };
    });
    for (const line of lines) {
      if (fields.weight) {
        line.weight = decoded(fields.weight[line.at], packed.largestWeight[line.j], packed.weightStep[line.j]);
        line.digits = DIGITS;
      } else {
        const terms = lines.map((other) => packed.inverse[line.j][other.j] * other.entry);
        line.weight = terms.reduce((a, b) => a + b, 0);
        const error = lines.reduce((sum, other, l) => sum + (Math.abs(terms[l]) * packed.step[other.j]) / 2, 0);
        line.digits = Math.min(Math.floor(Math.log10(Math.abs(line.weight) / error)), DIGITS);
        if (line.weight === 0) line.digits = DIGITS;
        if (!(line.digits >= 1)) [line.below, line.weight] = [Math.abs(line.weight) + error, null];
      }
      if (line.weight !== null) line.weight = rounded(line.weight, Math.max(line.digits, 1));
      line.entry = rounded(line.entry, DIGITS);
    }
    return lines.sort((a, b) => Math.abs(b.entry) - Math.abs(a.entry) || a.j - b.j);
  };

  // The section ------------------------------------------------------------------------------------------------------
  mcpca.features = { state };
  mcpca.features.begin = () => {
    const field = el("input", {
      type: "search",
      id: "find-feature",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "name, or part of it",
      "aria-describedby": "feature-count",
      input: () => search(!mcpca.address.reading()),
      keydown: (event) => {
        if (event.key === "Enter") parts.matches.querySelector("button")?.click();
        else if (event.key === "ArrowDown") parts.matches.querySelector("button")?.focus();
        else return;
        event.preventDefault();
      },
    });
    parts = {
      field,
      count: el("p", { id: "feature-count", class: "muted", role: "status" }),
      matches: el("ul", { id: "feature-matches", class: "matches", "aria-label": "Features that match" }),
      one: el("div", { id: "feature" }),
    };
    parts.matches.addEventListener("keydown", (event) => {
      const buttons = [...parts.matches.querySelectorAll("button")],
        at = buttons.indexOf(document.activeElement);
      if (event.key === "ArrowDown") buttons[Math.min(at + 1, buttons.length - 1)].focus();
      else if (event.key === "ArrowUp") (at ? buttons[at - 1] : field).focus();
      else return;
      event.preventDefault();
    });
    chart = mcpca.chart("chart-feature");
    const written =
      packed.written < packed.features
        ? ` Of ${count(packed.features)} features the ${count(packed.written)} with the largest entries are in this ` +
          "file."
        : "";
    const each =
      packed.each < mcpca.r
        ? ` Of each feature its largest entries, ${count(packed.each)} of ${count(mcpca.r)}, are in this file.`
        : "";
    byId("features").append(
      el("div", { class: "title" }, el("h2", { id: "features-title" }, "Features"), mcpca.backToMap()),
      el(
        "p",
        { class: "muted" },
        `One feature in every MCPC, found among ${whole ? "all " : ""}${count(packed.written)} by its name.`,
        written,
        each,
      ),
      el("div", { class: "controls" }, el("label", {}, "Find a feature ", field)),
      parts.count,
      parts.matches,
      parts.one,
    );
    mcpca.address.control("find-feature");
    mcpca.address.register("feature", {
      read: (text) => {
        const value = Number(text);
        state.chosen = Number.isInteger(value) && value >= 1 && value <= packed.written ? value - 1 : null;
      },
      write: () => (state.chosen === null ? null : String(state.chosen + 1)),
      show: () => showWhenReady(),
    });
  };

  const CANNOT =
    "This browser cannot unpack the features: it needs Chrome or Edge 80, Firefox 113, Safari 16.4, or later. The " +
    "features at the poles are shown for each MCPC.";
  const whenReady = async (act) => {
    try {
      await ready();
    } catch {
      parts.count.textContent = CANNOT;
      return;
    }
    act();
  };
  const showWhenReady = () => {
    if (state.chosen === null) return parts.one.replaceChildren();
    return whenReady(show);
  };

  const search = (byReader) =>
    whenReady(() => {
      const typed = parts.field.value;
      const found = matching(typed),
        all = found.flat();
      parts.count.textContent = typed.trim() === "" ? "" : told(found, all.length);
      parts.matches.replaceChildren(
        ...all
          .slice(0, LISTED)
          .map((f) =>
            el(
              "li",
              {},
              el("button", { type: "button", class: "link", click: () => mcpca.features.choose(f) }, marked(f, typed)),
              el("span", { class: "muted small" }, ` ${KINDS[found.findIndex((list) => list.includes(f))]}`),
            ),
          ),
      );
      const same = found[0].length ? found[0] : found[1];
      if (byReader && same.length === 1 && same[0] !== state.chosen) {
        state.chosen = same[0];
        mcpca.address.replace();
        show();
      }
      mcpca.features.searched = typed;
    });
  const told = (found, n) => {
    if (!n) return `No feature has this in its name, of ${mcpca.many(packed.written, "feature")}.`;
    const kinds = [
      [found[0].length + found[1].length, "with this name"],
      [found[2].length, "that begin so"],
      [found[3].length, "that contain it"],
    ];
    const words = kinds.filter(([m]) => m).map(([m, what]) => `${count(m)} ${what}`);
    return `${mcpca.many(n, "feature")}: ${words.join(", ")}${n > LISTED ? `; the first ${LISTED} are listed` : ""}.`;
  };

  // By its place, or by its name.
  mcpca.features.choose = (which, section = null) =>
    whenReady(() => {
      const f = typeof which === "string" ? names.indexOf(which) : which;
      if (f < 0) {
        // The name is among those that are not in this file.
        parts.field.value = which;
        search(false);
      } else {
        state.chosen = f;
        mcpca.address.push();
        show();
        mcpca.announce(`Feature ${mcpca.short(names[f])}.`);
      }
      if (section) mcpca.goTo(section);
    });

  const show = () => {
    const f = state.chosen;
    if (f === null || !names) return;
    const lines = mcpca.features.entries(f),
      top = lines.slice(0, MOST_BARS);
    const name = names[f];
    mcpca.draw(chart, `Entries of ${mcpca.short(name)} in the MCPCs; the numbers are in the table below.`, () => ({
      height: mcpca.rowsHeight(top.length),
      file: ["feature", name],
      traces: [
        {
          type: "bar",
          orientation: "h",
          x: top.map((line) => line.entry),
          y: mcpca.range(top.length),
          marker: { color: top.map((line) => mcpca.colour(line.entry > 0 ? "positive" : "negative")) },
          text: top.map((line) => `${mcpca.mcpcPlot(line.j)}: ${number(line.entry)}`),
          textposition: "none",
          hovertemplate: "%{text}<extra></extra>",
        },
      ],
      layout: {
        xaxis: mcpca.axis("entry of the feature in the MCPC"),
        yaxis: mcpca.nameAxis(top.map((line) => mcpca.mcpcPlot(line.j))),
      },
    }));
    const percentile = (line) => `${line.percentile.toFixed(places)}%`;
    const best = lines[0],
      inWhich = packed.each < mcpca.r ? `${count(packed.each)} of` : "all";
    parts.one.replaceChildren(
      ...[
        el("h3", {}, mcpca.nameNode(name, 80)),
        mcpca.wholeName(name),
        el(
          "p",
          { id: "feature-words" },
          `Its largest entry is ${number(best.entry)}, in `,
          el("button", { type: "button", class: "link", click: () => goTo(best) }, mcpca.mcpcName(best.j)),
          `: ${percentile(best)} of all ${count(packed.features)} features have a smaller one there, by size.`,
        ),
        chart,
        mcpca.table({
          caption: `Entries of ${mcpca.short(name)} in ${inWhich} ${count(mcpca.r)} MCPCs`,
          file: `feature-${f + 1}.csv`,
          columns: [
            { title: "MCPC", name: true, value: (line) => data.mcpcs[line.j] },
            { title: "entry", value: (line) => line.entry },
            { title: "percentile", value: (line) => rounded(line.percentile, 7), text: percentile },
            {
              title: "weight in scores",
              value: (line) => line.weight,
              text: (line) => (line.weight === null ? `below ${number(line.below, 1)}` : number(line.weight)),
            },
          ],
          rows: lines,
          open: true,
          click: goTo,
          marked: (line) => line.j === mcpca.chosen.mcpc,
        }),
        el(
          "p",
          { class: "muted small" },
          "Entry: how the feature moves with the MCPC, a vector of length 1. Percentile: the share of all features whose ",
          "entry in this MCPC is smaller, by size. Weight in scores: what a unit of the feature adds to the score. ",
          "Entries are known to 0.05% and shown with three digits, weights with as many as follow from that.",
        ),
      ].filter(Boolean),
    );
  };
  const goTo = (line) => mcpca.choose({ mcpc: line.j }, "mcpc");
  mcpca.features.show = show;
  let last = { f: null, lines: null };
  mcpca.features.entries = (f) => {
    if (last.f !== f) last = { f, lines: entriesOf(f) };
    return last.lines;
  };
}
