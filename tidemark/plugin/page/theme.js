"use strict";
// Light or dark as Airflow around this page, before anything is drawn. Airflow marks the root of its document with the
// class `dark` or `light`, and keeps the choice as `theme`; without either, the system's choice holds.

function airflowsTheme() {
  try {
    const marks = window.parent.document.documentElement.classList;
    if (window.parent !== window && marks.contains("dark")) return "dark";
    if (window.parent !== window && marks.contains("light")) return "light";
    const kept = window.localStorage.getItem("theme");
    return kept === "dark" || kept === "light" ? kept : null;
  } catch {
    return null;
  }
}

function takeTheme() {
  const found = airflowsTheme();
  document.documentElement.classList.toggle("dark", found === "dark");
  document.documentElement.classList.toggle("light", found === "light");
}

takeTheme();
// Where Airflow follows the system, nothing is kept: only the mark changes.
try {
  const root = window.parent.document.documentElement;
  if (window.parent !== window) new MutationObserver(takeTheme).observe(root, { attributeFilter: ["class"] });
} catch {
  // The page around this one is not Airflow's.
}
window.addEventListener("storage", () => setTimeout(takeTheme, 50));
