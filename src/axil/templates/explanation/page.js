// The predictions: choose one, show it.

const MOST_LISTED = 2000; // predictions in the list at a time; a search finds the others
const MOST_STEPS = 10; // rows or groups of the waterfall with a bar of their own
const FOLDED = 8; // groups in sight until all are asked for
const PRINTED = 8; // features that a sheet of paper has room for
const UNCERTAIN = 0.95; // share of calibration rows with smaller errors to be expected
const WITHOUT = {
  "out-of-fold": "its out-of-fold prediction", "out-of-bag": "its out-of-bag prediction", "leave-one-out": "the prediction without the row",
  leverage: "an estimate of the prediction without the row, from its leverage", fit: "its fitted prediction",
};

function start(data) {
  const { queries, training, k } = data;
  const words = wording(data);
  const { additive, exact, many, means, chances, predicted, chance, probability, meant, targetsShown, shown, targetDigits, price, unit, scale, log, value, amount, level, ofFit, word, score, named, plus, amountName } = words;
  const shared = data.weights.length === 1;
  const state = { query: 0, output: 0, sort: "rank", descending: false, unfolded: false };
  const own = (columns) => columns[shared ? 0 : state.output]; // those of a set of weights
  const of = (columns, i) => own(columns)[i];
  const adds = data.kind !== "derivative"; // derivatives do not add up to the prediction
  const classes = chances !== null;
  const notReasons = classes || additive ? " Groups of training rows are evidence, not reasons by feature: nothing here says which features led to the prediction." : "";
  const intervals = data.intervals, confidenceLevel = intervals === null ? "" : `${feature(Number((100 * intervals.confidence_level).toPrecision(6)))} %`;
  let follows = classes && many; // the predicted class, until an output is chosen by hand
  // Contributions count from nothing, or from the mean of all targets.
  const fromMean = () => exact && byId("start").value === "mean";
  // Under the head of the column, beside the numbers: explanation.contributions and the tables of axil count from nothing.
  const amountNote = () => (fromMean() ? [make("small", { textContent: `relative to the ${log ? "geometric mean" : "mean"}` })] : []);
  const counted = (weight, contribution) => (fromMean() ? contribution - weight * data.means[state.output] : contribution);

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
        rank, row, weight, label: training.labels[row], target: words.classOf(row) ?? targetsShown[state.output][row], contribution: counted(weight, weight * targets[row]),
        share: size > 0 ? Math.min(1, held / size) : 0,
        features: training.features === null ? [] : training.features.map((column) => column[row]),
      });
    }
    return found;
  }
  function groupsOf(i) {
    const size = own(data.group_rows).length / data.n;
    const found = Array.from({ length: size }, (_, g) => i * size + g).map((j) => {
      const weight = own(data.group_weights)[j];
      return { label: data.groups[own(data.group_rows)[j]], weight, contribution: counted(weight, data.group_contributions[state.output][j]) };
    });
    const rest = of(data.group_rest_weights, i);
    return { found, rest: { weight: rest, contribution: counted(rest, data.group_rest_contributions[state.output][i]), number: data.groups.length - size } };
  }
  const summed = (lines) => ({ weight: lines.reduce((sum, line) => sum + line.weight, 0), contribution: lines.reduce((sum, line) => sum + line.contribution, 0) });
  // What all contributions are added to.
  function base(i) {
    const intercept = data.intercepts[state.output][i], weight = of(data.totals, i), mean = data.means[state.output];
    if (!fromMean()) return { name: "Intercept", change: intercept };
    const change = intercept + mean * weight, whole = level(mean * weight) === level(mean);
    const average = classes ? `Share of ${data.outputs[state.output]}` : log ? "Geometric mean" : `Mean${ofFit} of targets`;
    const times = whole ? "" : ` ${log ? "^" : "×"} ${format(weight, Math.max(3, Math.min(9, decimalsOf([1 - weight], 2))))}`;
    return { name: average + times + (intercept ? ` ${log ? "×" : "+"} intercept` : ""), change };
  }

  // ---- the list ----

  let listed = [];
  function listedAs(i) {
    if (follows || (classes && !many)) return `${data.classes[predicted(i)]}: ${probability(chance(predicted(i), i))}`;
    return means === null ? meant(state.output, i) : `${price(shown[state.output][i])} (${meant(state.output, i)})`;
  }
  function listNote() {
    if (follows || (classes && !many)) return ": class and probability";
    return means === null ? "" : `: score (${classes ? "probability" : "expected value"})`;
  }
  function fillList() {
    const wanted = byId("find").value.trim().toLowerCase();
    const matches = [];
    queries.labels.forEach((label, i) => { if (label.toLowerCase().includes(wanted)) matches.push(i); });
    listed = matches.slice(0, MOST_LISTED);
    byId("list").replaceChildren(...listed.map((i) => make("li", { id: "query-" + i, role: "option", "aria-selected": String(i === state.query), title: queries.labels[i] },
      make("span", { textContent: queries.labels[i] }), make("span", { textContent: listedAs(i) }))));
    const rest = matches.length > listed.length ? `; the first ${count(listed.length)} are listed` : "";
    byId("found").textContent = `${count(matches.length)} of ${things(data.n, "prediction")}${rest}${listNote()}`;
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
  // The address names the prediction, so that it can be sent.
  function link() {
    try {
      history.replaceState(null, "", "#" + encodeURIComponent(queries.labels[state.query]));
    } catch { /* a frame in a notebook has no address of its own */ }
  }
  function linked() {
    try {
      return queries.labels.indexOf(decodeURIComponent(location.hash.slice(1)));
    } catch { return -1; } // no label that was encoded here
  }
  function pick(i) {
    choose(i);
    link();
  }
  window.addEventListener("hashchange", () => { if (linked() >= 0 && queries.labels[linked()] !== queries.labels[state.query]) choose(linked()); });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); }); // the address stays
  byId("find").addEventListener("input", fillList);
  byId("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && listed.length) pick(listed[0]);
    if (event.key === "ArrowDown" && listed.length) { event.preventDefault(); byId("list").focus(); if (!listed.includes(state.query)) pick(listed[0]); }
  });
  byId("list").addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) pick(Number(item.id.slice(6)));
  });
  byId("list").addEventListener("keydown", (event) => {
    const at = listed.indexOf(state.query), last = listed.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    pick(listed[Math.max(0, Math.min(last, to))]);
  });

  // ---- one prediction ----

  function card(name, text, note = "", className = "") {
    return make("div", { className }, make("dt", { textContent: name }), make("dd", { textContent: text, className: /\p{L}/u.test(text) ? "" : "whole" }), ...(note ? [make("dd", { className: "note", textContent: note })] : []));
  }
  function actualCards(i) {
    const actual = data.actual.values[classes || data.classes !== null ? 0 : state.output][i];
    if (data.classes !== null) return [card("Actual class", data.classes[actual], !classes ? "" : actual === predicted(i) ? "predicted right" : `predicted: ${data.classes[predicted(i)]}`)];
    const apart = actual - (means ?? shown)[state.output][i];
    return [
      card(`Actual ${data.target ?? "value"}`, unit(format(actual, Math.max(targetDigits, decimalsOf(data.actual.values.flat(), 7)))), `${unit(price(Math.abs(apart)))} ${apart < 0 ? "below" : "above"} the prediction`),
      ...(intervals !== null ? [] : [card("Typical error", unit(price(data.actual.typical[state.output])), `half of the ${things(data.n, "prediction")} here are nearer to the actual value`)]),
    ];
  }
  function showCards(i) {
    const output = state.output, cards = [], of_class = classes ? ` of ${data.classes[many ? output : 1]}` : "";
    if (!classes || means !== null) cards.push(card(named(i) + of_class + (data.target === null || classes ? "" : `: ${data.target}`), (additive ? price : (x) => unit(price(x)))(shown[output][i]), scale === null ? "" : `${value(data.predictions[output][i])}${ofFit}`));
    if (classes) {
      const best = predicted(i);
      cards.push(card("Probability" + of_class, meant(output, i), best === (many ? output : 1) ? "the predicted class" : `predicted: ${data.classes[best]}, ${probability(chance(best, i))}`));
    } else if (means !== null) cards.push(card("Expected value", meant(output, i), "what the score stands for"));
    if (data.actual !== null) cards.push(...actualCards(i));
    if (intervals !== null) {
      const [lower, upper, rank] = [intervals.lower, intervals.upper, intervals.uncertainty_rank].map((column) => column[output][i]);
      const note = `${rank < 0.5 ? `surer than ${percent(1 - rank)}` : `less sure than ${percent(rank)}`} of the calibration rows`;
      cards.push(card(`${confidenceLevel} interval`, `${unit(price(lower))} to ${unit(price(upper))}`, (rank >= UNCERTAIN ? "Uncertain: " : "") + note, rank >= UNCERTAIN ? "interval uncertain" : "interval"));
    }
    if (data.standard_errors !== null) {
      const error = data.standard_errors[output][i], said = data.about_sigma === null ? "" : `; ${data.about_sigma}`;
      cards.push(card("Standard error" + ofFit, format(error, decimalsOf([error], 3)), `from noise in training targets alone; real errors are larger${said}`));
    }
    if (data.stability !== null) {
      const moved = data.stability.std[output][i], whole = Math.abs((means ?? shown)[output][i]), part = whole > 0 ? moved / whole : null;
      const text = classes ? `± ${probability(moved)}` : part !== null && part < 10 ? `± ${percent(part)}` : `± ${unit(price(moved))}`;
      cards.push(card("Retraining alone moves this by", text, `${classes || part === null ? "" : `± ${unit(price(moved))}, `}the standard deviation of ${data.stability.words}`, "wide"));
    }
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
    byId("proof").textContent = !adds ? "" : sum + (model === null ? " It was not compared with the model." : ` ${data.combined !== null ? "The same sum of the model's own predictions is" : additive ? "The model itself has the score" : "The model itself predicts"} ${full(model)}${ofFit}; the two are ${apart}.`) +
      (scale === null ? "" : ` As a target that is ${price(shown[state.output][i])}.`);
    byId("meaning").textContent = additive
      ? "Contributions are what each row's own gradients put into the raw score while the model was fitted. With the intercept, where every score starts, they sum to the score exactly. They are not sensitivities: other rows have their part in a row's gradients. They do not say what a refit would do."
      : exact
      ? `Exact with the fitted structure fixed: the splits stay as they are and only the values in the leaves follow the targets. A weight is how far the prediction${ofFit} would move if that one target${ofFit} were one larger. It does not say what a refit would do.`
      : "A derivative with the fitted structure fixed: how the prediction moves, to first order, with each target. It does not decompose the prediction: derivatives times targets do not add up to it. It does not say what a refit would do.";
    if (data.held) byId("meaning").textContent += ` Fixed besides the splits: ${data.held}.`;
    if (scale !== null) byId("meaning").textContent += log
      ? ` The model was fitted to logarithms${ofFit}, and weights are of these: if a row's ${plus}target were 1 % higher, ${plus}the prediction would be higher by as many percent as its ${word} says.`
      : ` The model was fitted to transformed targets${ofFit}: ${word}s, contributions and standard errors are on that scale; targets and predictions are not.`;
  }

  function table(element, heads, lines, foot = []) {
    element.replaceChildren(make("thead", {}, ...heads), make("tbody", {}, ...lines), ...(foot.length ? [make("tfoot", {}, ...foot)] : []));
  }
  const cell = (text, className = "number") => make("td", { textContent: text, className, title: text.length > 24 ? text : "" });
  const label = (text) => make("th", { textContent: text, className: "label", scope: "row", title: text });
  const once = (element) => (additive ? [] : [element]); // an additive model has contributions alone: one column, not two
  const added = (element) => (adds ? [element] : []);
  const header = (text, className = "number", ...notes) => make("th", { textContent: text, className, scope: "col" }, ...notes);

  const bar = (x, largest) => make("td", { className: "bar" }, draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { width: (100 * Math.abs(x)) / largest, height: 8, class: x < 0 ? "down" : "up" })));

  const noBar = () => make("td", { className: "bar" });
  // The cells of a group's line: a bar stands beside the number that it draws.
  const groupCells = (weight, drawn, contribution) => (additive ? [contribution, drawn] : adds ? [weight, drawn, contribution] : [weight, drawn]);

  function showWide(i) {
    byId("wide").hidden = intervals === null;
    if (intervals === null) return;
    const o = state.output, size = intervals.rows[o].length / data.n;
    const at = Array.from({ length: size }, (_, rank) => i * size + rank).filter((j) => intervals.rows[o][j] >= 0);
    const shares = at.map((j) => intervals.shares[o][j]), decimals = decimalsOf(at.map((j) => intervals.weights[o][j]), 4);
    const error = (x) => (x === null ? "–" : amount(x)); // of a row that no tree left out
    const lines = at.map((j, rank) => make("tr", {}, label(training.labels[intervals.rows[o][j]]), cell(percent(shares[rank])), bar(shares[rank], shares[0]), cell(error(intervals.errors[o][j])),
      cell(format(targetsShown[o][intervals.rows[o][j]], targetDigits)), cell(format(intervals.weights[o][j], decimals))));
    table(byId("wide-table"), [make("tr", {}, header("Row", "label"), header("Share"), noBar(), header(log ? "Error, as a factor" : "Error" + ofFit), header(words.targetHead), header("Weight"))], lines);
    byId("wide-note").textContent = `Share: of the row in the sum of absolute weight × absolute error. Error: ${log ? "the ratio of the row's target to" : "how far the row's target is above"} ${WITHOUT[intervals.training_errors]}. ` +
      `${intervals.source === "held out" ? "" : "About "}${counts(intervals.confidence_level)} such intervals hold the target, of rows like the ${count(intervals.n_calibration)} calibration rows (${intervals.source}).`;
  }
  const reckoned = () => (!fromMean() ? "" : log ? ` Factors are relative to the geometric mean, ${level(data.means[state.output])}.` : ` Contributions count from the mean, ${value(data.means[state.output])}.`);
  function showGroups(i) {
    byId("groups").hidden = data.groups === null;
    if (data.groups === null) return;
    const { found, rest } = groupsOf(i), fold = state.unfolded || found.length <= FOLDED + 1 ? found.length : FOLDED;
    const decimals = decimalsOf(found.map((line) => line.weight), 4), largest = Math.max(...found.map((line) => Math.abs(line.weight))) || 1;
    const lines = found.slice(0, fold).map((line) => make("tr", {}, label(line.label), ...groupCells(cell(format(line.weight, decimals)), bar(line.weight, largest), cell(amount(line.contribution)))));
    const others = summed([...found.slice(fold), rest]), left = found.length - fold + rest.number;
    const foot = left <= 0 ? [] : [make("tr", {}, label(`${count(left)} other groups`), ...groupCells(cell(format(others.weight, decimals)), noBar(), cell(amount(others.contribution))))];
    table(byId("groups-table"), [make("tr", {}, header("Group", "label"), ...groupCells(header("Sum of " + word + "s"), noBar(), header(amountName, "number", ...amountNote())))], lines, foot);
    byId("groups-note").textContent = `The largest sum of ${word}s first.${adds ? reckoned() : ""}${notReasons}`;
    byId("unfold").hidden = found.length <= FOLDED + 1;
    byId("unfold").textContent = state.unfolded ? `Show ${FOLDED} groups` : `Show ${count(found.length)} groups`;
  }

  // ---- comparables ----

  const beyond = (f) => (f < PRINTED ? "" : " beyond");
  const columns = [
    { key: "label", name: "Row", kind: "label" }, { key: "rank", name: "Rank", kind: "number aside" }, ...once({ key: "weight", name: exact ? "Weight" : "Derivative", kind: "number" }),
    { key: "share", name: "Share so far", kind: "number aside" }, { key: "target", name: words.targetHead, kind: "number" }, ...added({ key: "contribution", name: amountName, kind: "number" }),
    ...(training.features === null ? [] : data.features.map((name, f) => ({ key: f, name, kind: "feature number" + beyond(f) }))),
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
    return make("th", { className: column.kind, scope: "col", "aria-sort": sorted, "data-name": column.name }, button, ...(column.key === "contribution" ? amountNote() : []));
  }
  const years = data.features.map((_, f) => isYears([...(training.features?.[f] ?? []), ...queries.features[f]]));
  function featureCell(x, f, asked) {
    const text = feature(x, years[f] ? false : "always");
    const same = asked !== undefined && x !== null && x === asked ? " same" : x === null ? " missing" : "";
    return cell(text, (typeof x === "string" ? "feature" : "feature number") + same + beyond(f));
  }
  // A line of the table: the columns that are not features, then those.
  const line = (name, { rank = "", weight = "", share = "", target = "", contribution = "" }, features, className = "") =>
    make("tr", { className }, label(name), cell(rank, "number aside"), ...once(cell(weight)), cell(share, "number aside"), cell(target), ...added(cell(contribution)), ...features);
  function showRows(i) {
    const all = rowsOf(i), wanted = byId("filter").value.trim().toLowerCase();
    const decimals = decimalsOf(all.map((row) => row.weight), 4);
    const asked = queries.features.map((column) => column[i]);
    const text = (row) => [row.label, ...[row.target, ...row.features].flatMap((x) => [feature(x), feature(x, "always")])].join("\n").toLowerCase();
    const kept = all.filter((row) => text(row).includes(wanted)).sort(compare);
    const ownFeatures = training.features === null ? [] : asked.map((x, f) => featureCell(x, f));
    const blanks = () => ownFeatures.map((_, f) => cell("", "number" + beyond(f)));
    const query = line("This prediction", { target: classes ? data.classes[predicted(i)] : meant(state.output, i) }, ownFeatures, "query");
    const lines = kept.map((row) => line(row.label, { rank: count(row.rank), weight: format(row.weight, decimals), share: percent(row.share), target: words.target(row.row, state.output), contribution: amount(row.contribution) },
      row.features.map((x, f) => featureCell(x, f, asked[f]))));
    const foot = [], left = data.n_train - all.length, rest = of(data.rest_weights, i);
    if (left > 0) foot.push(line(left === 1 ? "1 other row" : `All ${count(left)} other rows`, { weight: format(rest, decimals), share: all.length ? percent(1 - all.at(-1).share) : "", contribution: amount(counted(rest, data.rest_contributions[state.output][i])) }, blanks()));
    if (adds) {
      const from = base(i);
      foot.push(line(from.name, { contribution: fromMean() ? level(from.change) : amount(from.change) }, blanks()), line(log ? "Prediction" : score + ofFit, { contribution: level(data.predictions[state.output][i]) }, blanks()));
    }
    table(byId("rows"), [make("tr", {}, ...columns.map(headOf)), query], lines, foot); // in the head the query's features stay in sight
    byId("rows-found").textContent = wanted ? `${count(kept.length)} of ${count(all.length)} rows shown` : "";
    byId("rows-note").textContent = `These rows made the number; those most like it may be others, which similar lists. Share so far: of the absolute ${word}, down to this row.` +
      (training.features === null ? "" : ` Coloured features equal the prediction's own, to ${data.feature_digits} digits.`) + (adds ? reckoned() : "") +
      (log && !fromMean() ? ` Factor: ${plus}target to the power of the ${word}; with the intercept's they multiply to ${plus}the prediction.` : "") +
      (data.features_left_out ? ` ${count(data.features_left_out)} more features are not shown; choose with columns=.` : "");
    return all;
  }

  // ---- charts ----

  function steps(i, all) {
    const found = [{ ...base(i), total: true }], left = data.n_train - all.length;
    const add = (lines, name) => found.push({ name, change: summed(lines).contribution });
    if (byId("by").value === "groups") {
      const groups = groupsOf(i), others = groups.found.length - MOST_STEPS + groups.rest.number;
      for (const group of groups.found.slice(0, MOST_STEPS)) add([group], group.label);
      if (others > 0) add([...groups.found.slice(MOST_STEPS), groups.rest], `${count(others)} other groups`);
    } else {
      for (const row of all.slice(0, MOST_STEPS)) add([row], row.label);
      if (all.length > MOST_STEPS) add(all.slice(MOST_STEPS), `${count(all.length - MOST_STEPS)} more rows listed`);
      const rest = of(data.rest_weights, i);
      if (left > 0) add([{ weight: rest, contribution: counted(rest, data.rest_contributions[state.output][i]) }], `${things(left, "row")} not listed`);
    }
    found.push({ name: log ? "Prediction" : score + ofFit, change: data.predictions[state.output][i], total: true });
    for (const step of found) step.text = step.total ? level(step.change) : (!log && step.change > 0 ? "+" : "") + amount(step.change);
    return found;
  }
  function showWaterfall(i, all) {
    byId("adding").hidden = !adds;
    if (!adds) return;
    byId("waterfall").replaceChildren(waterfallChart(steps(i, all), Math.max(280, byId("waterfall").clientWidth), !fromMean()));
    const byGroups = byId("by").value === "groups", bars = byGroups ? `Each bar ${log ? "multiplies" : "sums"}, over the rows of a group, ` : "Each bar is ";
    byId("waterfall-note").textContent = bars + (log
      ? fromMean()
        ? `the ratio of a ${plus}target to the geometric mean, ${level(data.means[state.output])}, to the power of its ${word}. The axis is logarithmic.`
        : `a ${plus}target to the power of its ${word}. Together with the intercept they multiply to ${plus}the prediction. The axis is logarithmic.`
      : fromMean()
      ? `a ${word} times how far its target${ofFit} is from the mean, ${value(data.means[state.output])}.`
      : `a ${additive ? word : `${word} times its target${ofFit}`}. Together with the intercept they sum to the ${score.toLowerCase()}.`) + (byGroups ? notReasons : "");
  }
  function showShare(i, all, needed) {
    const ranks = data.curve_ranks, curve = own(data.curve), full = 1 - 1e-6; // seven digits are known
    const marks = data.shares.map((share, s) => [needed[s], all[needed[s] - 1]?.share ?? share]);
    const points = [...all.map((row) => [row.rank, row.share]), ...ranks.map((n, r) => [n, curve[i * ranks.length + r]]), ...marks.filter(([n]) => n > all.length)].sort((a, b) => a[0] - b[0]);
    const end = points.findIndex(([, share]) => share >= full);
    byId("share").replaceChildren(shareChart(end < 0 ? points : points.slice(0, end + 1), marks, data.shares, Math.max(280, byId("share").clientWidth)));
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
    byId("name").textContent = byId("name").title = words.title(i, state.output);
    const needed = showCards(i);
    drawn = [i, showRows(i), needed];
    showCharts();
    showWide(i);
    showGroups(i);
    showMap(data, shared ? 0 : state.output, i, drawn[1]);
    showProof(i);
  }

  const kind = { exact: "exact", additive: "contributions that add up to the score", derivative: "a derivative" }[data.kind];
  const right = data.actual === null ? "" : data.actual.right !== null ? ` ${count(data.actual.right)} of ${count(data.n)} classes are predicted right.` : many ? "" : ` Half of them are within ${unit(price(data.actual.typical[0]))} of the actual value.`;
  byId("title").textContent = document.title = data.title ?? `Predictions${data.target === null ? "" : ` of ${data.target}`} and the training rows that made them`;
  byId("about").textContent = `${things(data.n, "prediction")} by ${things(data.n_train, "training row")}; ${kind}, with the fitted structure fixed${scale === null ? "" : `; fitted to transformed targets${ofFit}`}.${data.n ? right : ""}`;
  byId("rows-title").textContent = `What made it: the training rows of largest ${word}`;
  byId("proof-title").textContent = adds ? "Proof" : "What a derivative says";
  byId("rows-printed").textContent = data.features.length > PRINTED ? `Of ${count(data.features.length)} features the first ${PRINTED} are printed.` : "";
  byId("start").closest("label").hidden = !exact; // a gradient contribution has no mean target to count from
  byId("by").closest("label").hidden = data.groups === null;
  byId("pair").classList.toggle("single", !adds);
  if (data.groups !== null && data.diffuse) byId("by").value = "groups"; // no row says much by itself
  else byId("comparables").after(byId("groups"));
  if (data.n === 0) return;
  byId("layout").hidden = false;
  if (many) {
    byId("outputs").hidden = false;
    byId("outputs").firstChild.textContent = classes ? "Class " : "Output ";
    byId("output").append(...data.outputs.map((name, o) => make("option", { value: String(o), textContent: name })));
    byId("output").addEventListener("change", () => { follows = false; state.output = Number(byId("output").value); fillList(); show(); });
  }
  byId("filter").addEventListener("input", () => showRows(state.query));
  byId("start").addEventListener("change", show);
  byId("by").addEventListener("change", showCharts);
  byId("unfold").addEventListener("click", () => { state.unfolded = !state.unfolded; showGroups(state.query); });
  fillList();
  choose(Math.max(0, linked()));
  let width = byId("waterfall").clientWidth;
  new ResizeObserver(() => {
    if (byId("waterfall").clientWidth === width) return;
    width = byId("waterfall").clientWidth;
    showCharts();
  }).observe(byId("waterfall"));
}
