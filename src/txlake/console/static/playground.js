// Takes the playground's part of the next page, so that the page doesn't jump; and looks again
// while a statement waits. Without it the forms do the same with whole pages.
"use strict";

(() => {
  const LOOK_AGAIN_MS = 1000;
  let busy = false;

  const current = () => document.getElementById("playground");

  // What was typed into other forms, and which details are open, stay as they are.
  function keep(from, to, without) {
    for (const field of from.querySelectorAll("textarea")) {
      const same = document.getElementById(field.id);
      if (same && field !== without) same.value = field.value;
    }
    const before = from.querySelectorAll("details");
    to.querySelectorAll("details").forEach((one, place) => {
      if (before[place] && before[place].open) one.open = true;
    });
  }

  function show(text, without, focused) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const made = page.getElementById("playground");
    if (!made) {
      const problem = page.getElementById("main");
      const here = document.getElementById("main");
      if (problem && here) here.replaceWith(document.adoptNode(problem));
      else location.reload();
      return;
    }
    const old = current();
    const adopted = document.adoptNode(made);
    old.replaceWith(adopted);
    keep(old, adopted, without);
    const same = focused && document.getElementById(focused);
    if (same && !same.disabled) same.focus({ preventScroll: true });
    else if (focused) {
      const next = adopted.querySelector("button:not(:disabled)");
      if (next) next.focus({ preventScroll: true });
    }
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const place = current();
    if (!place || !place.contains(form)) return;
    event.preventDefault();
    if (busy) return;
    busy = true;
    place.setAttribute("aria-busy", "true");
    const focused = document.activeElement ? document.activeElement.id : "";
    // Not form.action, which is the field of that name.
    const fields = new URLSearchParams(new FormData(form));
    const button = event.submitter;
    if (button && button.name) fields.set(button.name, button.value);
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body: fields, credentials: "same-origin" });
      show(await answer.text(), answer.ok ? form.querySelector("textarea") : null, focused);
    } catch (error) {
      location.reload();
    } finally {
      busy = false;
      if (current()) current().removeAttribute("aria-busy");
    }
  });

  // A form sends what its textarea has by Ctrl+Enter.
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field.matches("#playground textarea")) {
      event.preventDefault();
      field.form.requestSubmit();
    }
  });

  setInterval(async () => {
    const place = current();
    if (busy || document.hidden || !place || place.dataset.waits !== "true") return;
    const stamp = place.dataset.stamp;
    try {
      const answer = await fetch(location.pathname, { credentials: "same-origin" });
      const text = answer.ok ? await answer.text() : "";
      const isSame = !text || busy || current() !== place;
      const page = isSame ? null : new DOMParser().parseFromString(text, "text/html");
      const made = page && page.getElementById("playground");
      if (made && made.dataset.stamp !== stamp) {
        show(text, null, document.activeElement ? document.activeElement.id : "");
      }
    } catch (error) {
      // The console is away; the next look tells.
    }
  }, LOOK_AGAIN_MS);
})();
