// The slider goes to its step when it is let go; the arrow keys go one step on or back.
"use strict";
const form = document.getElementById("steps");
const slider = form.querySelector("input[type=range]");
const output = form.querySelector("output");
slider.addEventListener("input", () => { output.textContent = slider.value; });
slider.addEventListener("change", () => form.requestSubmit());
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, .wide")) return;
  const link = { ArrowLeft: "previous", ArrowRight: "next" }[event.key];
  if (link) document.getElementById(link)?.click();
});
