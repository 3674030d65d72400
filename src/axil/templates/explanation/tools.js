"use strict";
// Elements, drawings and numbers. Text from the data is only ever set as textContent.

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

// As many decimals as show the given number of digits of the largest of the values; none if all are whole.
function decimalsOf(values, digits) {
  const known = values.filter(Number.isFinite);
  if (known.every(Number.isInteger)) return 0;
  const largest = known.reduce((most, value) => Math.max(most, Math.abs(value)), 0); // Math.max(...) cannot take very many
  return largest > 0 ? Math.min(12, Math.max(0, digits - 1 - Math.floor(Math.log10(largest)))) : 0;
}

const percent = (share) => format(100 * share, share > 0 && share < 0.0995 ? 1 : 0) + " %";
const count = (value) => format(value, 0);
const things = (n, thing) => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;
// A column of years: its numbers have no commas.
const isYears = (values) => values.every((x) => x === null || (Number.isInteger(x) && x >= 1500 && x <= 2200));
function feature(value, useGrouping = false) {
  if (typeof value !== "number") return value === null ? "–" : String(value);
  const digits = Number.isInteger(value) ? 16 : 7, key = digits + String(useGrouping);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en", { maximumSignificantDigits: digits, useGrouping }));
  return formats.get(key).format(value).replace("-", "−");
}
// A probability as people count it: 9 of 10.
function counts(probability) {
  const of = [10, 20, 100].find((n) => Math.abs(probability * n - Math.round(probability * n)) < 1e-6);
  return of === undefined ? `${feature(100 * probability)} of 100` : `${Math.round(probability * of)} of ${of}`;
}
