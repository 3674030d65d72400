// Light and dark, and the start: unpack the summary, show it.

function themes() {
  const system = matchMedia("(prefers-color-scheme: dark)"), button = byId("theme");
  let dark = false;
  const set = (on) => {
    document.documentElement.dataset.theme = (dark = on) ? "dark" : "light";
    button.textContent = on ? "Light mode" : "Dark mode"; // what a click will do
  };
  button.addEventListener("click", () => set(!dark));
  system.addEventListener("change", () => set(system.matches));
  set(system.matches);
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
