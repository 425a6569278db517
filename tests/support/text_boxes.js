// Every visible line of text in the window, [text, left, top, right, bottom, element], and those that lie on another.
const seenText = () => {
  const clip = (box, node) => {
    for (let at = node; at && at !== document.body; at = at.parentElement) {
      const { overflowX, overflowY, position } = getComputedStyle(at);
      const frame = at.getBoundingClientRect();
      if (overflowX !== "visible") [box[0], box[2]] = [Math.max(box[0], frame.left), Math.min(box[2], frame.right)];
      if (overflowY !== "visible") [box[1], box[3]] = [Math.max(box[1], frame.top), Math.min(box[3], frame.bottom)];
      if (position === "fixed") break;
    }
    return [Math.max(box[0], 0), Math.max(box[1], 0), Math.min(box[2], innerWidth), Math.min(box[3], innerHeight)];
  };
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("script, style, noscript, option")) continue;
    if (!parent.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.bottom < 0 || r.top > innerHeight) continue;
      const box = clip([r.left, r.top, r.right, r.bottom], parent);
      if (box[2] - box[0] > 2 && box[3] - box[1] > 2) boxes.push([node.data.trim(), ...box, parent]);
    }
  }
  return boxes;
};
const overlaps = (least = 2) => {
  const opaque = (node) => /^rgb\(/.test(getComputedStyle(node).backgroundColor);
  const boxes = seenText();
  const found = [];
  // What is below an opaque element is not seen: nav covers what is scrolled under it.
  const covered = (node, stack) => {
    let found = node; // text of charts lets the pointer through to what is around it
    while (found && !stack.includes(found)) found = found.parentElement;
    const at = stack.indexOf(found);
    return at > 0 && stack.slice(0, at).some(opaque);
  };
  boxes.forEach((a, i) => {
    for (const b of boxes.slice(i + 1)) {
      if (a[5] === b[5] || a[5].contains(b[5]) || b[5].contains(a[5])) continue; // one text, in pieces
      const [left, right] = [Math.max(a[1], b[1]), Math.min(a[3], b[3])];
      const [top, bottom] = [Math.max(a[2], b[2]), Math.min(a[4], b[4])];
      if (right - left <= least || bottom - top <= least) continue;
      const stack = document.elementsFromPoint((left + right) / 2, (top + bottom) / 2);
      if (covered(a[5], stack) || covered(b[5], stack)) continue;
      const word = (box) => `"${box[0].slice(0, 30)}" at ${box.slice(1, 5).map(Math.round)}`;
      found.push(`${word(a)} and ${word(b)}`);
    }
  });
  return { count: boxes.length, found };
};
const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
// Until the charts in the window are painted, as wide as their places.
const settled = async () => {
  const near = () =>
    [...document.querySelectorAll(".chart")].filter((chart) => {
      const box = chart.getBoundingClientRect();
      return box.bottom > 0 && box.top < innerHeight;
    });
  const done = (chart) => {
    const svg = chart.querySelector(".main-svg");
    return mcpca.painted(chart) && svg && Math.abs(svg.clientWidth - chart.clientWidth) <= 1;
  };
  await frame();
  for (const end = performance.now() + 5000; performance.now() < end && !near().every(done); ) await frame();
};
// At every section in turn.
const sweep = async () => {
  const answer = {};
  for (const section of document.querySelectorAll("main section")) {
    section.scrollIntoView({ block: "start" });
    await settled();
    answer[section.id] = overlaps();
  }
  return answer;
};
