"use strict";
// The search hides the sections that do not hold the words.
const field = document.getElementById("find"), sections = [...document.querySelectorAll("section")];
field.addEventListener("input", () => {
  const words = field.value.trim().toLowerCase();
  for (const section of sections) section.hidden = !section.dataset.find.includes(words);
  const count = sections.filter((section) => !section.hidden).length;
  document.getElementById("found").textContent = words ? `Found: ${count} of ${sections.length}` : "";
});
