"use strict";
// The whole page: unpack the summary, choose a prediction, show it. Text from the data is only ever set as textContent.

const MOST_LISTED = 2000; // predictions in the list at a time; a search finds the others
const MOST_STEPS = 10; // rows of the waterfall with a bar of their own
const ALARM = 0.95; // share of calibration rows with smaller errors to be expected
const WITHOUT = {
  "out-of-fold": "its out-of-fold prediction", "out-of-bag": "its out-of-bag prediction", "leave-one-out": "the prediction without the row",
  leverage: "an estimate of the prediction without the row, from its leverage", fit: "its fitted prediction",
};
const byId = (id) => document.getElementById(id);
const collator = new Intl.Collator(undefined, { numeric: true });

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- numbers ----

const formats = new Map();
function format(value, decimals, options = {}) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const key = decimals + JSON.stringify(options);
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals, ...options }));
  }
  const text = formats.get(key).format(value).replace("-", "−");
  return /[1-9]/.test(text) ? text : text.replace("−", "");
}

// As many decimals as give the largest of the values so many digits; none if all are whole.
function decimalsOf(values, digits) {
  const known = values.filter(Number.isFinite);
  if (known.every(Number.isInteger)) return 0;
  const largest = known.reduce((most, value) => Math.max(most, Math.abs(value)), 0); // Math.max(...) cannot take very many
  return largest > 0 ? Math.min(12, Math.max(0, digits - 1 - Math.floor(Math.log10(largest)))) : 0;
}

const percent = (share) => format(100 * share, share > 0 && share < 0.0995 ? 1 : 0) + " %";
const count = (value) => format(value, 0);
const [wholes, parts] = [16, 7].map((digits) => new Intl.NumberFormat("en", { maximumSignificantDigits: digits, useGrouping: "min2" }));
function feature(value) {
  if (typeof value !== "number") return value === null ? "–" : String(value);
  return (Number.isInteger(value) ? wholes : parts).format(value).replace("-", "−");
}

// ---- the page ----

function start(data) {
  const { queries, training, k } = data;
  const many = data.outputs !== null;
  const shared = data.weights.length === 1;
  const state = { query: 0, output: 0, sort: "rank", descending: false };
  const own = (columns) => columns[shared ? 0 : state.output]; // those of a set of weights
  const of = (columns, i) => own(columns)[i];
  const [targetsShown, shown] = [training.shown ?? training.targets, data.shown ?? data.predictions];
  const additive = data.kind === "additive", exact = data.kind === "exact"; // pushes: every target is one, and weights are contributions
  const targetDigits = decimalsOf(targetsShown.flat(), 7);
  const priceDigits = Math.max(decimalsOf(shown.flat(), 6), targetDigits);
  const price = (x) => format(x, priceDigits); // targets and predictions as people read them
  // Everything else is on the scale of the fit, where it adds up: of logarithms it is shown as factors.
  const scale = data.scale, log = scale !== null && scale.base !== null;
  const valueDigits = scale === null ? priceDigits : decimalsOf(data.predictions.flat(), 6);
  const value = (x) => format(x, valueDigits);
  const factor = (x) => "× " + format(x, decimalsOf([x], 5));
  const amount = (x) => (log ? factor(scale.base ** x) : value(x));
  const level = (x) => (log ? price(scale.base ** x - scale.shift) : value(x));
  const ofFit = scale === null ? "" : ` (${scale.name})`;
  const plus = log && scale.shift ? `${scale.shift} + ` : "";
  const amountName = log ? "Factor" : "Contribution" + ofFit;
  const word = { exact: "weight", additive: "contribution", jacobian: "derivative" }[data.kind];
  const score = additive ? "Score" : "Prediction";
  // Behind the link: what a score stands for, and of several classes the one that is predicted.
  const means = data.means_of_scores, probable = data.meaning === "probability";
  const probability = (p) => format(p, Math.max(3, Math.min(6, decimalsOf([Math.min(p, 1 - p)], 2)))); // close to 0 or 1 with more digits
  const meant = (o, i) => (probable ? probability(means[o][i]) : format(means[o][i], decimalsOf([means[o][i]], 4)));
  const predicted = (i) => means.reduce((best, column, o) => (column[i] > means[best][i] ? o : best), 0);
  const meanName = probable ? "Probability" : "Expected value";
  const classes = many && means !== null && probable;
  const intervals = data.intervals, coverage = intervals === null ? "" : `${feature(Number((100 * intervals.coverage).toPrecision(6)))} %`;
  let follows = classes; // the predicted class, until an output is chosen by hand

  function rowsOf(i) {
    const [rows, weights] = [own(data.rows), own(data.weights)];
    const targets = training.targets[state.output];
    const found = [];
    let held = 0;
    for (let rank = 1; rank <= k; rank++) {
      const [row, weight] = [rows[i * k + rank - 1], weights[i * k + rank - 1]];
      if (row < 0) break;
      held += Math.abs(weight);
      const size = of(data.sizes, i);
      found.push({
        rank, row, weight, label: training.labels[row], target: targetsShown[state.output][row], contribution: weight * targets[row],
        share: size > 0 ? Math.min(1, held / size) : 0,
        features: training.features === null ? [] : training.features.map((column) => column[row]),
      });
    }
    return found;
  }

  // ---- the list ----

  let listed = [];
  function listedAs(i) {
    if (means === null) return price(shown[state.output][i]);
    const o = follows ? predicted(i) : state.output;
    return follows ? `${data.outputs[o]}: ${meant(o, i)}` : `${price(shown[o][i])} (${meant(o, i)})`;
  }
  function fillList() {
    const wanted = byId("find").value.trim().toLowerCase();
    const matches = [];
    queries.labels.forEach((label, i) => { if (label.toLowerCase().includes(wanted)) matches.push(i); });
    listed = matches.slice(0, MOST_LISTED);
    byId("list").replaceChildren(...listed.map((i) => make("li", { id: "query-" + i, role: "option", "aria-selected": String(i === state.query), title: queries.labels[i] },
      make("span", { textContent: queries.labels[i] }), make("span", { textContent: listedAs(i) }))));
    const rest = matches.length > listed.length ? `; the first ${count(listed.length)} are listed` : "";
    byId("found").textContent = `${count(matches.length)} of ${count(data.n)} predictions${rest}${means === null ? "" : follows ? ": class and probability" : `: score (${meanName.toLowerCase()})`}`;
    markList();
  }
  function markList() {
    const list = byId("list");
    list.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    const item = byId("query-" + state.query);
    if (item === null) return list.removeAttribute("aria-activedescendant");
    item.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", item.id);
    const [top, bottom] = [item.offsetTop - list.offsetTop, item.offsetTop - list.offsetTop + item.offsetHeight];
    if (top < list.scrollTop) list.scrollTop = top - 6; // scrollIntoView would move the page as well
    if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight + 6;
  }
  function choose(i) {
    state.query = i;
    if (follows) byId("output").value = String((state.output = predicted(i)));
    markList();
    show();
  }
  byId("find").addEventListener("input", fillList);
  byId("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && listed.length) choose(listed[0]);
    if (event.key === "ArrowDown" && listed.length) { event.preventDefault(); byId("list").focus(); if (!listed.includes(state.query)) choose(listed[0]); }
  });
  byId("list").addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) choose(Number(item.id.slice(6)));
  });
  byId("list").addEventListener("keydown", (event) => {
    const at = listed.indexOf(state.query), last = listed.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    choose(listed[Math.max(0, Math.min(last, to))]);
  });

  // ---- one prediction ----

  function card(name, text, note = "", className = "") {
    return make("div", { className }, make("dt", { textContent: name }), make("dd", { textContent: text }), ...(note ? [make("dd", { className: "note", textContent: note })] : []));
  }
  function showCards(i) {
    const output = state.output, cards = [card(score, price(shown[output][i]), scale === null ? "" : `${value(data.predictions[output][i])}${ofFit}`)];
    if (means !== null) {
      const best = classes ? predicted(i) : 0;
      const note = !classes ? "what the score stands for" : best === output ? "the predicted class" : `predicted: ${data.outputs[best]}, ${meant(best, i)}`;
      cards.push(card(meanName, meant(output, i), note));
    }
    if (intervals !== null) {
      const [lower, upper, alarm] = [intervals.lower, intervals.upper, intervals.alarm].map((column) => column[output][i]);
      const note = `less sure than ${percent(alarm)} of the calibration rows`;
      cards.push(card(`${coverage} interval`, `${price(lower)} to ${price(upper)}`, (alarm >= ALARM ? "Alarm: " : "") + note, alarm >= ALARM ? "interval alarm" : "interval"));
    }
    if (data.standard_errors !== null) {
      const error = data.standard_errors[output][i];
      cards.push(card("Standard error" + ofFit, format(error, decimalsOf([error], 3)), `noise of the targets passed on; not the model's bias${data.about_sigma === null ? "" : `; ${data.about_sigma}`}`));
    } else if (data.about_sigma !== null) cards.push(card("Standard error", "not known", data.about_sigma));
    const needed = data.shares.map((_, s) => own(data.needed)[i * data.shares.length + s]);
    cards.push(
      card("Effective size", format(of(data.effective_sizes, i), 1), `as many rows of equal ${word}`),
      card(`Rows for ${data.shares.map((s) => format(100 * s, 0)).join(" / ")} %`, needed.map(count).join(" / "), `of the absolute ${word}, of ${count(data.n_train)} rows`, "wide"),
      card(`Negative ${word}s`, percent(of(data.negative_shares, i)), `of the absolute ${word}`));
    byId("cards").replaceChildren(...cards);
    return needed;
  }

  function showProof(i) {
    const made = data.predictions[state.output][i], digits = Math.min(9, decimalsOf([made, 0.5], 12));
    const full = (x) => format(x, digits);
    const model = data.model === null ? null : data.model[state.output][i];
    const target = scale === null ? "target" : `target${ofFit}`;
    const sum = `Sum of ${additive ? "contributions" : `${word} × ${target}`} over all ${count(data.n_train)} training rows + intercept ${full(data.intercepts[state.output][i])} = ${full(made)}.`;
    const apart = made === model ? "equal" : Math.abs(made - model).toExponential(1).replace("-", "−") + " apart";
    byId("proof").textContent = sum + (model === null ? " It was not compared with the model." : ` The model itself ${additive ? "has the score" : "predicts"} ${full(model)}${ofFit}; the two are ${apart}.`) +
      (scale === null ? "" : ` As a target that is ${price(shown[state.output][i])}.`);
    byId("meaning").textContent = additive
      ? "Contributions are pushes: what each row's own gradients put into the raw score while the model was fitted. With the intercept, where every score starts, they sum to the score exactly. They are not sensitivities: other rows have their part in a row's gradients. They do not say what a refit would do."
      : exact
      ? `Exact with the fitted structure held fixed: the splits stay as they are and only the values in the leaves follow the targets. A weight is how far the prediction${ofFit} would move if that one target${ofFit} were one larger. It does not say what a refit would do.`
      : "A derivative with the fitted structure held fixed: how the prediction moves, to first order, with each target. It does not decompose the prediction: the intercept is what is left over, so that the sum above holds by construction. It does not say what a refit would do.";
    if (scale !== null) byId("meaning").textContent += log
      ? ` The model was fitted to logarithms${ofFit}, and weights are of these: if a row's ${plus}target were 1 % higher, ${plus}the prediction would be higher by as many percent as its ${word} says.`
      : ` The model was fitted to transformed targets${ofFit}: ${word}s, contributions and standard errors are on that scale; targets and predictions are not.`;
  }

  function table(element, heads, lines, foot = []) {
    element.replaceChildren(make("thead", {}, ...heads), make("tbody", {}, ...lines), ...(foot.length ? [make("tfoot", {}, ...foot)] : []));
  }
  const cell = (text, className = "number") => make("td", { textContent: text, className, title: text.length > 24 ? text : "" });
  const label = (text) => make("th", { textContent: text, className: "label", scope: "row", title: text });
  const once = (element) => (additive ? [] : [element]); // a push is its own contribution: one column, not two
  const header = (text, className = "number") => make("th", { textContent: text, className, scope: "col" });

  const bar = (x, largest) => make("td", { className: "bar" }, draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { width: (100 * Math.abs(x)) / largest, height: 8, class: x < 0 ? "down" : "up" })));

  function showWide(i) {
    byId("wide").hidden = intervals === null;
    if (intervals === null) return;
    const o = state.output, size = intervals.rows[o].length / data.n;
    const at = Array.from({ length: size }, (_, rank) => i * size + rank).filter((j) => intervals.rows[o][j] >= 0);
    const shares = at.map((j) => intervals.shares[o][j]), decimals = decimalsOf(at.map((j) => intervals.weights[o][j]), 4);
    const error = (x) => (x === null ? "–" : amount(x)); // of a row that no tree left out
    const lines = at.map((j, rank) => make("tr", {}, label(training.labels[intervals.rows[o][j]]), cell(percent(shares[rank])), cell(error(intervals.errors[o][j])),
      cell(format(targetsShown[o][intervals.rows[o][j]], targetDigits)), cell(format(intervals.weights[o][j], decimals)), bar(shares[rank], shares[0])));
    table(byId("wide-table"), [make("tr", {}, header("Row", "label"), header("Share"), header(log ? "Error, as a factor" : "Error" + ofFit), header("Target"), header("Weight"), make("td", { className: "bar" }))], lines);
    byId("wide-note").textContent = `Share: of the row in the sum of absolute weight × squared error. Error: ${log ? "the ratio of the row's target to" : "how far the row's target is above"} ${WITHOUT[intervals.training_errors]}. ` +
      `The interval holds the target with probability ${intervals.source === "held out" ? "" : "near "}${coverage}, on average over rows like the ${count(intervals.n_calibration)} calibration rows (${intervals.source}), not at every row.`;
  }
  function showGroups(i) {
    byId("groups").hidden = data.groups === null;
    if (data.groups === null) return;
    const size = own(data.group_rows).length / data.n;
    const at = Array.from({ length: size }, (_, g) => i * size + g);
    const weights = at.map((j) => own(data.group_weights)[j]), decimals = decimalsOf(weights, 4);
    const largest = Math.max(...weights.map(Math.abs)) || 1;
    const lines = at.map((j, g) => make("tr", {}, label(data.groups[own(data.group_rows)[j]]), ...once(cell(format(weights[g], decimals))), cell(amount(data.group_contributions[state.output][j])), bar(weights[g], largest)));
    const left = data.groups.length - size;
    const foot = left <= 0 ? [] : [make("tr", {}, label(`${count(left)} other groups`), ...once(cell(format(of(data.group_rest_weights, i), decimals))), cell(amount(data.group_rest_contributions[state.output][i])), cell(""))];
    table(byId("groups-table"), [make("tr", {}, header("Group", "label"), ...once(header("Sum of " + word + "s")), header(amountName), make("td", { className: "bar" }))], lines, foot);
  }

  // ---- comparables ----

  const columns = [
    { key: "label", name: "Row", label: true }, { key: "rank", name: "Rank" }, ...once({ key: "weight", name: exact ? "Weight" : "Derivative" }),
    { key: "share", name: "Share so far" }, { key: "target", name: "Target" }, { key: "contribution", name: amountName },
    ...(training.features === null ? [] : data.features.map((name, f) => ({ key: f, name, feature: true }))),
  ];
  const read = (line, key) => (typeof key === "number" ? line.features[key] : line[key]);
  function compare(a, b) {
    const [x, y] = [read(a, state.sort), read(b, state.sort)];
    if (x === null || y === null) return (x === null) - (y === null); // what is missing comes last either way
    const order = typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y));
    return state.descending ? -order : order;
  }
  function headOf(column) {
    const sorted = state.sort === column.key ? (state.descending ? "descending" : "ascending") : "none";
    const button = make("button", { type: "button", textContent: column.name, title: column.name });
    button.addEventListener("click", () => {
      const first = ["weight", "contribution", "target"].includes(column.key);
      state.descending = state.sort === column.key ? !state.descending : first;
      state.sort = column.key;
      showRows(state.query);
      byId("rows").querySelectorAll("thead button")[columns.indexOf(column)].focus();
    });
    const kind = column.label ? "label" : column.feature ? "feature number" : "number";
    return make("th", { className: kind, scope: "col", "aria-sort": sorted }, button);
  }
  function featureCell(x, asked) {
    const text = feature(x);
    const same = asked !== undefined && x !== null && x === asked ? " same" : x === null ? " missing" : "";
    return cell(text, (typeof x === "string" ? "feature" : "feature number") + same);
  }
  function showRows(i) {
    const all = rowsOf(i), wanted = byId("filter").value.trim().toLowerCase();
    const decimals = decimalsOf(all.map((line) => line.weight), 4);
    const asked = queries.features.map((column) => column[i]);
    const text = (line) => [line.label, feature(line.target), ...line.features.map(feature)].join("\n").toLowerCase();
    const kept = all.filter((line) => text(line).includes(wanted)).sort(compare);
    const blanks = (n) => Array.from({ length: n }, () => cell(""));
    const ownFeatures = columns.some((column) => column.feature) ? asked.map((x) => featureCell(x)) : [];
    const beside = means === null ? price(shown[state.output][i]) : meant(state.output, i); // what a target compares with
    const query = make("tr", { className: "query" }, label("This prediction"), ...blanks(additive ? 2 : 3), cell(beside), cell(""), ...ownFeatures);
    const lines = kept.map((line) => make("tr", {}, label(line.label), cell(count(line.rank)), ...once(cell(format(line.weight, decimals))), cell(percent(line.share)),
      cell(format(line.target, targetDigits)), cell(amount(line.contribution)), ...line.features.map((x, f) => featureCell(x, asked[f]))));
    const width = columns.length - (additive ? 5 : 6), left = data.n_train - all.length;
    const total = (name, weight, share, contribution) => make("tr", {}, label(name), cell(""), ...once(cell(weight === null ? "" : format(weight, decimals))), cell(share), cell(""), cell(contribution), ...blanks(width));
    const foot = [];
    if (left > 0) foot.push(total(`All ${count(left)} other rows`, of(data.rest_weights, i), all.length ? percent(1 - all.at(-1).share) : "", amount(data.rest_contributions[state.output][i])));
    foot.push(total("Intercept", null, "", amount(data.intercepts[state.output][i])), total(log ? "Prediction" : score + ofFit, null, "", level(data.predictions[state.output][i])));
    table(byId("rows"), [make("tr", {}, ...columns.map(headOf)), query], lines, foot); // in the head the query's features stay in sight
    byId("rows-found").textContent = wanted ? `${count(kept.length)} of ${count(all.length)} rows shown` : "";
    return all;
  }

  // ---- charts ----

  function steps(i, all) {
    const mean = byId("start").value === "mean" ? data.means[state.output] : 0;
    const rest = of(data.rest_weights, i), contribution = data.rest_contributions[state.output][i];
    const weight = of(data.totals, i);
    const add = (lines) => lines.reduce((sum, line) => sum + line.contribution - line.weight * mean, 0);
    const intercept = data.intercepts[state.output][i];
    const average = log ? "Geometric mean" : "Mean" + ofFit;
    const whole = Math.abs(weight - 1) < 1e-5 ? average + (log ? "" : " of targets") : `${average} ${log ? "^" : "×"} ${format(weight, 3)}`;
    const found = [{ name: mean ? whole + (intercept ? ` ${log ? "×" : "+"} intercept` : "") : "Intercept", change: intercept + mean * weight, total: true }];
    for (const line of all.slice(0, MOST_STEPS)) found.push({ name: line.label, change: add([line]) });
    const others = all.slice(MOST_STEPS), left = data.n_train - all.length;
    if (others.length) found.push({ name: `${count(others.length)} other listed rows`, change: add(others) });
    if (left > 0) found.push({ name: `${count(left)} rows not listed`, change: contribution - rest * mean });
    found.push({ name: log ? "Prediction" : score + ofFit, change: data.predictions[state.output][i], total: true });
    return found;
  }
  function along(low, high, from, to) {
    const span = high - low || 1;
    return (x) => from + ((x - low) / span) * (to - from);
  }
  function shorten(text, length) {
    return text.length > length ? text.slice(0, length - 1) + "…" : text;
  }
  function showWaterfall(i, all) {
    const width = Math.max(280, byId("waterfall").clientWidth), lines = steps(i, all), height = 25;
    const names = Math.min(230, width * 0.36), numbers = 96, letters = Math.floor(names / 7);
    let reached = 0;
    for (const line of lines) {
      [line.from, line.to] = line.total ? [0, line.change] : [reached, reached + line.change];
      reached = line.to;
    }
    const levels = lines.flatMap((line) => (line.total ? [line.to] : [line.from, line.to]));
    const fromZero = byId("start").value !== "mean";
    let [low, high] = [Math.min(...levels, ...(fromZero ? [0] : [])), Math.max(...levels, ...(fromZero ? [0] : []))];
    if (!fromZero) [low, high] = [low - 0.08 * (high - low || 1), high + 0.02 * (high - low || 1)];
    const x = along(low, high, names + 8, width - numbers);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${lines.length * height + 6}`, role: "img", "aria-label": `From ${lines[0].name} ${level(lines[0].change)} to the prediction ${level(lines.at(-1).change)}; the largest steps are in the table below.` });
    lines.forEach((line, at) => {
      const y = at * height + 4, [left, right] = [x(line.total && !fromZero ? low : line.from), x(line.to)].sort((a, b) => a - b);
      const sign = !log && !line.total && line.change > 0 ? "+" : "", text = line.total ? level(line.change) : sign + amount(line.change);
      svg.append(draw("g", {},
        draw("title", {}, `${line.name}: ${text}`),
        draw("text", { x: names, y: y + 14, "text-anchor": "end" }, shorten(line.name, letters)),
        draw("rect", { x: left, y, width: Math.max(1.5, right - left), height: height - 7, rx: 2, class: line.total ? "total" : line.change < 0 ? "down" : "up" }),
        draw("text", { x: width - 2, y: y + 14, "text-anchor": "end", class: line.total ? "" : "soft" }, text)));
      if (at < lines.length - 1) svg.append(draw("line", { x1: x(line.to), x2: x(line.to), y1: y + height - 7, y2: y + height, class: "join" }));
    });
    byId("waterfall").replaceChildren(svg);
    if (log) byId("waterfall-note").textContent = fromZero
      ? `Each bar is a ${plus}target to the power of its ${word}. Together with the intercept they multiply to ${plus}the prediction. The axis is logarithmic.`
      : `Each bar is the ratio of a ${plus}target to the geometric mean, ${level(data.means[state.output])}, to the power of its ${word}. The axis is logarithmic.`;
    else byId("waterfall-note").textContent = fromZero
      ? `Each bar is a ${additive ? word : `${word} times its target${ofFit}`}. Together with the intercept they sum to the ${score.toLowerCase()}.`
      : `Each bar is a ${word} times how far its target${ofFit} is from the mean, ${value(data.means[state.output])}. The axis does not start at zero.`;
  }
  function showShare(i, all, needed) {
    const width = Math.max(280, byId("share").clientWidth), height = 250;
    const points = all.map((line) => [line.rank, line.share]);
    data.shares.forEach((share, s) => { if (needed[s] > all.length) points.push([needed[s], share]); });
    if (all.length && data.n_train > all.length) points.push([data.n_train, 1]);
    const last = Math.max(2, ...points.map((point) => point[0]));
    const x = along(0, Math.log10(last), 44, width - 14), y = along(0, 1, height - 34, 10);
    const at = (n) => x(Math.log10(n));
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": data.shares.map((s, j) => `${percent(s)} in ${count(needed[j])} rows`).join(", ") });
    for (const share of [0, ...data.shares, 1]) {
      svg.append(draw("line", { x1: 44, x2: width - 14, y1: y(share), y2: y(share), class: "grid" }));
      if (share !== 1) svg.append(draw("text", { x: 38, y: y(share) + 4, "text-anchor": "end", class: "soft" }, percent(share)));
    }
    for (let n = 1; n <= last; n *= 10) svg.append(draw("text", { x: at(n), y: height - 19, "text-anchor": at(n) > width - 40 ? "end" : "middle", class: "soft" }, count(n)));
    svg.append(draw("text", { x: width / 2, y: height - 4, "text-anchor": "middle", class: "soft" }, "rows, the largest first"));
    if (points.length) svg.append(draw("polyline", { class: "curve", points: points.map(([n, share]) => `${at(n)},${y(share)}`).join(" ") }));
    data.shares.forEach((share, s) => {
      if (needed[s] < 1) return;
      const right = at(needed[s]) > width - 90, up = y(all[needed[s] - 1]?.share ?? share);
      svg.append(draw("circle", { cx: at(needed[s]), cy: up, r: 4, class: "dot" }),
        draw("text", { x: at(needed[s]) + (right ? -8 : 8), y: up + (right ? -7 : 16), "text-anchor": right ? "end" : "start" }, `${count(needed[s])} row${needed[s] === 1 ? "" : "s"}`));
    });
    byId("share").replaceChildren(svg);
    byId("share-note").textContent = `Share of the absolute ${word} that the rows down to each account for.`;
  }

  // ---- all of it ----

  let drawn = [];
  function showCharts() {
    const [i, all, needed] = drawn;
    showWaterfall(i, all);
    showShare(i, all, needed);
  }
  function show() {
    const i = state.query;
    byId("name").textContent = byId("name").title = queries.labels[i] + (many ? `: ${data.outputs[state.output]}` : "");
    const needed = showCards(i);
    drawn = [i, showRows(i), needed];
    showCharts();
    showWide(i);
    showGroups(i);
    showMap(data, shared ? 0 : state.output, i, rowsOf(i));
    showProof(i);
  }

  const kind = { exact: "exact", additive: "pushes that add up to the score", jacobian: "a derivative" }[data.kind];
  byId("start").closest("label").hidden = additive; // a push has no mean target to count from
  byId("about").textContent = `${count(data.n)} predictions by ${count(data.n_train)} training rows; ${kind}, with the fitted structure held fixed${scale === null ? "" : `; fitted to transformed targets${ofFit}`}.${data.held ? ` Held fixed besides the splits: ${data.held}.` : ""}`;
  byId("rows-title").textContent = `Comparables: the training rows of largest ${word}`;
  byId("rows-note").textContent = `Share so far: of the absolute ${word}, down to this row.` +
    (training.features === null ? "" : ` Coloured features equal the prediction's own, to ${data.feature_digits} digits.`) +
    (log ? ` Factor: ${plus}target to the power of the ${word}; with the intercept's they multiply to ${plus}the prediction.` : "") +
    (data.features_left_out ? ` ${count(data.features_left_out)} more features are not shown; choose with columns=.` : "");
  if (data.n === 0) return;
  byId("layout").hidden = false;
  if (many) {
    byId("outputs").hidden = false;
    byId("output").append(...data.outputs.map((name, o) => make("option", { value: String(o), textContent: name })));
    byId("output").addEventListener("change", () => { follows = false; state.output = Number(byId("output").value); fillList(); show(); });
  }
  if (follows) byId("output").value = String((state.output = predicted(0)));
  byId("filter").addEventListener("input", () => showRows(state.query));
  byId("start").addEventListener("change", showCharts);
  fillList();
  show();
  let width = byId("waterfall").clientWidth;
  new ResizeObserver(() => {
    if (byId("waterfall").clientWidth === width) return;
    width = byId("waterfall").clientWidth;
    showCharts();
  }).observe(byId("waterfall"));
}

function themes() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), button = byId("theme");
  const set = (on) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    button.setAttribute("aria-pressed", String(on));
  };
  button.addEventListener("click", () => set(button.getAttribute("aria-pressed") !== "true"));
  dark.addEventListener("change", () => set(dark.matches));
  set(dark.matches);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

themes();
unpack(byId("data").textContent).then(start).catch((error) => {
  byId("about").textContent = `This page could not be shown: ${error}. It needs a browser of 2023 or later.`;
  throw error;
});
