// The page "Now" is asked for again every two seconds, unless it is paused, nobody sees it, or the
// focus is on what would be replaced.
"use strict";
const button = document.getElementById("pause");
const part = document.getElementById("part");
let paused = false;

async function refresh() {
  if (paused || document.hidden || part.contains(document.activeElement)) return;
  try {
    const answer = await fetch(button.dataset.part, { redirect: "manual" });
    if (answer.ok) part.innerHTML = await answer.text();
    else if (answer.type === "opaqueredirect") location.reload();
  } catch {
    // The server is away; the page says as of when it is.
  }
}

if (button && part) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
  });
  setInterval(refresh, 2000);
}
