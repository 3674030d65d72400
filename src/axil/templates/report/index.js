"use strict";
// The search: shards of sorted labels, loaded as scripts because a page from disk may not read other files. Text is only ever set as textContent.
const FIRST = {{ first_labels | tojson }}, TOTAL = {{ total }}, MOST = 100, PREFIX = 2;
const shards = FIRST.map(() => null);
const waiting = new Map();
let asked = 0;
function shard(i, entries) {
  shards[i] = entries.map(([label, folder, name, value, more]) => ({ label, value, more, key: label.toLowerCase(), all: `${label} ${more}`.toLowerCase(), file: `pages/${folder}/${name === 0 ? label : name}.html` }));
  waiting.get(i)?.resolve();
}
function load(i) {
  if (shards[i] !== null) return Promise.resolve();
  if (!waiting.has(i)) {
    const promise = {};
    promise.done = new Promise((resolve, reject) => Object.assign(promise, { resolve, reject }));
    waiting.set(i, promise);
    const script = document.createElement("script");
    script.src = `search/${i}.js`;
    script.onerror = () => { waiting.delete(i); promise.reject(new Error(`search/${i}.js is missing`)); };
    document.head.append(script);
  }
  return waiting.get(i).done;
}
function make(tag, text, className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}
function show(matches, status) {
  document.getElementById("list").replaceChildren(...matches.slice(0, MOST).map((entry) => {
    const item = document.createElement("li"), link = make("a", entry.label);
    link.href = entry.file;
    item.append(link, make("span", entry.more, "soft"), make("b", entry.value));
    return item;
  }));
  document.getElementById("found").textContent = status;
}
// Labels that begin with the words come from one or two shards; others are looked for in all of them, one after the other.
async function find() {
  const mine = ++asked, words = document.getElementById("find").value.trim().toLowerCase();
  let low = 0;
  while (low + 1 < FIRST.length && FIRST[low + 1] < words) low += 1;
  const begins = [];
  for (let i = low; i < FIRST.length && begins.length <= MOST && (i === low || FIRST[i].startsWith(words) || FIRST[i] < words); i++) {
    await load(i);
    if (mine !== asked) return;
    begins.push(...shards[i].filter((entry) => entry.key.startsWith(words)));
  }
  const many = (n) => (n > MOST ? `more than ${MOST}, the first are listed` : String(n));
  if (words.length < PREFIX || begins.length > MOST) return show(begins, words ? `Found: ${many(begins.length)}` : TOTAL === 1 ? "1 page" : `${TOTAL.toLocaleString("en")} pages${TOTAL > MOST ? "; the first are listed" : ""}`);
  const known = new Set(begins), matches = [...begins];
  for (let i = 0; i < FIRST.length && matches.length <= MOST; i++) {
    show(matches, `Found: ${many(matches.length)}; looking on, ${Math.round((100 * i) / FIRST.length)} %`);
    await load(i);
    if (mine !== asked) return;
    matches.push(...shards[i].filter((entry) => entry.all.includes(words) && !known.has(entry)));
  }
  show(matches, `Found: ${many(matches.length)}`);
}
const run = () => find().catch((error) => { document.getElementById("found").textContent = `The search stopped: ${error.message}.`; });
let pause;
document.getElementById("find").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(run, 150); });
run();
