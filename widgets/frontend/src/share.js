// A design in the address: to copy as a link, and to open from one. Python packs, unpacks and checks it.

import { copyText } from "./code.js";
import { h, icon } from "./dom.js";

const FRAGMENT = /[#&]cmask=[\w-]+/;
let handled = ""; // the fragment that was opened or sent away: JupyterLab draws a Studio anew when its cell scrolls

/** A button that copies a link to the design; `tell(text, wrong)` says what became of it. */
export function linkButton(link, tell) {
  return h("button", {
    type: "button", class: "cms-button", title: "A link whose #cmask=… holds this design", async onclick() {
      const { fragment, error } = await link.ask("share", {});
      if (error) tell(error, true);
      else if (await copyText(`${location.href.split("#")[0]}#${fragment}`)) tell("Link copied: it opens this design in a Studio, or with cm.Studio.from_link.");
      else tell("The browser did not allow copying.", true);
    },
  }, icon("link"), "Link");
}

/** The fragment of this page that holds a design, or "". */
export function sharedFragment() {
  // JupyterLab cleans its address once it has opened the notebook; the address of the visit is still known.
  const visit = performance.getEntriesByType("navigation")[0]?.name ?? "";
  const [found = ""] = FRAGMENT.exec(location.hash) ?? FRAGMENT.exec(visit) ?? [];
  return found === handled ? "" : found;
}

export function forgetFragment(fragment) {
  handled = fragment;
  if (location.hash.includes(fragment.slice(1))) history.replaceState(history.state, "", location.href.split("#")[0]);
}

/** Takes the design over as one edit: undo brings back what was there. */
export async function openShared(store, link, fragment) {
  const { design, error } = await link.ask("shared", { text: fragment });
  if (error) {
    store.emit("problem", error);
    return;
  }
  const { rev, ...change } = design;
  store.selection = [];
  store.commit("open the shared design", change);
  store.emit("selection");
}
