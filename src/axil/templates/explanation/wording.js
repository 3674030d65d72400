// Names, units and formats of the numbers of a page.

function wording(data) {
  const { training, queries } = data;
  const [targetsShown, shown] = [training.shown ?? training.targets, data.shown ?? data.predictions];
  const additive = data.kind === "additive", exact = data.kind === "exact"; // additive: every target is one, and weights are contributions
  const many = data.outputs !== null, means = data.means_of_scores;
  const targetDigits = decimalsOf(targetsShown.flat(), 7);
  const priceDigits = Math.max(decimalsOf(shown.flat(), data.classes !== null && exact ? 4 : 6), targetDigits);
  const price = (x) => format(x, priceDigits); // targets and predictions as people read them
  const before = data.unit !== null && /^\p{Sc}$/u.test(data.unit); // $5, but 5 kg
  const unit = (text) => (data.unit === null || text === "–" ? text : before ? text.replace(/^(−?)/, `$1${data.unit.replace("$", "$$$$")}`) : `${text}${data.unit.length < 4 ? "\u00a0" : " "}${data.unit}`);
  const ofUnit = data.unit === null ? "" : ` (${data.unit})`;
  // Everything else is on the scale of the fit, where it adds up: of logarithms it is shown as factors.
  const scale = data.scale, log = scale !== null && scale.base !== null;
  const valueDigits = scale === null ? priceDigits : decimalsOf(data.predictions.flat(), 6);
  const value = (x) => format(x, valueDigits);
  const factor = (x) => "× " + format(x, decimalsOf([x], 5));
  const amount = (x) => (log ? factor(scale.base ** x) : value(x));
  const level = (x) => (log ? price(scale.base ** x - scale.shift) : value(x));
  const ofFit = scale === null ? "" : ` (${scale.name})`;
  // Classes by name, with their probabilities; of two classes with one score that of the second.
  const chances = data.classes === null ? null : data.meaning === "probability" && means !== null ? means : exact && many ? data.predictions : null;
  const predicted = (i) => (many ? chances.reduce((best, column, c) => (column[i] > chances[best][i] ? c : best), 0) : Number(chances[0][i] > 0.5));
  const chance = (c, i) => (many ? chances[c][i] : c === 1 ? chances[0][i] : 1 - chances[0][i]);
  const rest = (p) => Math.min(p, 1 - p);
  const probability = (p) => format(p, rest(p) < 5e-7 ? 3 : Math.max(3, Math.min(6, decimalsOf([rest(p)], 2)))); // close to 0 or 1 with more digits
  const meant = (o, i) => (chances !== null ? probability(chances[o][i]) : means === null ? price(shown[o][i]) : unit(format(means[o][i], decimalsOf([means[o][i]], 4))));
  const classOf = (row) => (training.classes === null ? null : data.classes[training.classes[row]]);
  const plain = (name) => /^[\d.,\-−]*$/.test(name); // a number alone says nothing
  const title = (i, o) => {
    const name = plain(queries.labels[i]) ? `Prediction ${queries.labels[i]}` : queries.labels[i];
    if (chances !== null) return `${name}: ${data.classes[many ? o : predicted(i)]} (class)`;
    return name + (many ? `: ${plain(data.outputs[o]) ? "output " : ""}${data.outputs[o]}` : "");
  };
  const word = { exact: "weight", additive: "contribution", derivative: "derivative" }[data.kind];
  const score = additive ? "Score" : "Prediction";
  const own = scale === null && !additive && data.classes === null; // contributions have the unit of the targets
  return {
    additive, exact, many, means, chances, predicted, chance, probability, meant, classOf, title, targetsShown, shown, targetDigits, price, unit, scale, log, value, amount, level, ofFit, word,
    score,
    named: (i) => (data.combined === null ? score : data.combined[i][0].toUpperCase() + data.combined[i].slice(1)), // what the number of prediction i is
    plus: log && scale.shift ? `${scale.shift} + ` : "",
    amountName: log ? "Factor" : "Contribution" + (own ? ofUnit : ofFit),
    targetName: data.target ?? (data.classes === null ? "Target" : "Class"),
    targetHead: (data.target ?? (data.classes === null ? "Target" : "Class")) + (data.classes === null ? ofUnit : ""),
    target: (row, o) => classOf(row) ?? format(targetsShown[o][row], targetDigits),
  };
}
