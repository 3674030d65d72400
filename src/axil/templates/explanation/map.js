// The map of one prediction and its comparables. Where everything is was computed before; here it is drawn.

function showMap(data, set, i, rows) {
  const map = data.map, section = byId("map");
  const at = (name, j) => map[name][set][j];
  section.hidden = map === null || at("query", 2 * i) === null;
  if (section.hidden) return;
  const svg = draw("svg", { class: "map", viewBox: `0 0 ${map.width} ${map.height}`, role: "img", "aria-label": `The prediction and ${things(rows.length, "training row")}` });
  let lost = 0;
  for (const line of [...rows].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight))) {
    const j = i * data.k + line.rank - 1;
    if (at("x", j) === null) { lost += 1; continue; }
    const circle = draw("circle", { cx: at("x", j), cy: at("y", j), r: at("radius", j), class: line.weight < 0 ? "down" : "up" });
    circle.append(draw("title", {}, `${line.label}, rank ${line.rank}, ${at("away", j)}`));
    svg.append(circle);
  }
  const [x, y] = [at("query", 2 * i), at("query", 2 * i + 1)], low = map.height - map.margin / 2, left = map.margin / 2, length = at("bar", 2 * i);
  svg.append(
    draw("path", { class: "you", d: `M${x} ${y - 9}l9 9-9 9-9-9z` }, draw("title", {}, data.queries.labels[i])),
    draw("path", { class: "bar", d: `M${left} ${low - 5}v5h${length}v-5` }),
    draw("text", { class: "bar", x: left + length + 6, y: low - 3 }, map.bar_text[set][i]));
  byId("map-drawing").replaceChildren(svg);
  byId("map-note").textContent = "The diamond is the prediction, circles are its comparables: larger where their weight is, and in another colour where it is negative. North is up; streets are not drawn." +
    (lost ? ` ${count(lost)} without coordinates.` : "");
}
