// Drawings, from numbers and words that are ready.

function along(low, high, from, to) {
  const span = high - low || 1;
  return (x) => from + ((x - low) / span) * (to - from);
}
// The width of a text in a chart, in pixels: letters differ, and so do the fonts of systems.
function widths() {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
  return (text) => pen.measureText(text).width;
}
function shorten(text, room, width) {
  if (width(text) <= room) return text;
  let length = text.length - 1;
  while (length > 1 && width(text.slice(0, length) + "…") > room) length -= 1;
  return text.slice(0, length) + "…";
}
const sheet = (width, height, label) => draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });

// Steps from one total to another: lines of { name, change, total, text }. A total is a bar from zero, or a mark where zero is not on the axis.
function waterfallChart(lines, width, fromZero) {
  const height = 25, numbers = 96, wide = widths();
  const names = Math.min(230, width * 0.42, 4 + Math.max(...lines.map((line) => wide(line.name))));
  let reached = 0;
  for (const line of lines) {
    [line.from, line.to] = line.total ? [0, line.change] : [reached, reached + line.change];
    reached = line.to;
  }
  const levels = lines.flatMap((line) => (line.total ? [line.to] : [line.from, line.to]));
  let [low, high] = [Math.min(...levels, ...(fromZero ? [0] : [])), Math.max(...levels, ...(fromZero ? [0] : []))];
  if (!fromZero) [low, high] = [low - 0.04 * (high - low || 1), high + 0.04 * (high - low || 1)];
  const x = along(low, high, names + 8, width - numbers);
  const svg = sheet(width, lines.length * height + 6, `From ${lines[0].name} ${lines[0].text} to the prediction ${lines.at(-1).text}; the largest steps are in the table below.`);
  lines.forEach((line, at) => {
    const y = at * height + 4, isMark = line.total && !fromZero;
    const [left, right] = isMark ? [x(line.to) - 2, x(line.to) + 2] : [x(line.from), x(line.to)].sort((a, b) => a - b);
    svg.append(draw("g", {},
      draw("title", {}, `${line.name}: ${line.text}`),
      draw("text", { x: names, y: y + 14, "text-anchor": "end" }, shorten(line.name, names - 2, wide)),
      draw("rect", { x: left, y, width: Math.max(1.5, right - left), height: height - 7, rx: 2, class: line.total ? "total" : line.change < 0 ? "down" : "up" }),
      draw("text", { x: width - 2, y: y + 14, "text-anchor": "end", class: line.total ? "" : "soft" }, line.text)));
    if (at < lines.length - 1) svg.append(draw("line", { x1: x(line.to), x2: x(line.to), y1: y + height - 7, y2: y + height, class: "join" }));
  });
  return svg;
}

// The share that the first rows hold, by their number: points [rows, share] of the curve, and marks among them.
function shareChart(points, marks, shares, width) {
  const height = 250, last = Math.max(2, ...points.map((point) => point[0]));
  const x = along(0, Math.log10(last), 44, width - 14), y = along(0, 1, height - 34, 10), at = (n) => x(Math.log10(n));
  const svg = sheet(width, height, marks.map(([n, share]) => `${percent(share)} in ${count(n)} rows`).join(", "));
  for (const share of [0, ...shares, 1]) {
    svg.append(draw("line", { x1: 44, x2: width - 14, y1: y(share), y2: y(share), class: "grid" }));
    if (share !== 1) svg.append(draw("text", { x: 38, y: y(share) + 4, "text-anchor": "end", class: "soft" }, percent(share)));
  }
  for (let n = 1; n <= last; n *= 10) svg.append(draw("text", { x: at(n), y: height - 19, "text-anchor": at(n) > width - 40 ? "end" : "middle", class: "soft" }, count(n)));
  svg.append(draw("text", { x: width / 2, y: height - 4, "text-anchor": "middle", class: "soft" }, "rows, the largest first"));
  if (points.length) svg.append(draw("polyline", { class: "curve", points: points.map(([n, share]) => `${at(n)},${y(share)}`).join(" ") }));
  for (const [n, share] of marks) {
    if (n < 1) continue;
    const right = at(n) > width - 90, up = y(share);
    svg.append(draw("circle", { cx: at(n), cy: up, r: 4, class: "dot" }),
      draw("text", { x: at(n) + (right ? -8 : 8), y: up + (right ? -7 : 16), "text-anchor": right ? "end" : "start" }, `${count(n)} row${n === 1 ? "" : "s"}`));
  }
  return svg;
}
