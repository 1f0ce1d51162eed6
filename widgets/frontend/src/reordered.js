// The view of the tiles in the token order that the compiler chooses. Python computes it; it is looked at, not edited:
// positions in it are not the mask's.

import { clear, figures, h, whole } from "./dom.js";

/** Keeps `store.reordered` the answer for the design on screen while that view is chosen; returns the note below it. */
export function reorderedNote(store, link, stage) {
  const note = h("p", { class: "cms-order-note", role: "status", hidden: true });
  const tell = (...words) => clear(note, words);
  const refresh = async () => {
    const on = store.look.mode === "order";
    note.hidden = !on;
    stage.element.classList.toggle("cms-reordered", on);
    if (!on) return;
    stage.setHover(null);
    const { rev } = store.design;
    if (store.reordered?.rev === rev) return;
    store.reordered = null;
    tell("The compiler looks for a token order …");
    stage.redraw();
    const answer = await link.ask("order", { rev });
    if (store.design.rev !== rev) return;
    store.reordered = { ...answer, rev, bytes: answer.cells ? Uint8Array.from(atob(answer.cells), (c) => c.charCodeAt(0)) : null };
    stage.redraw();
    const { natural, reordered } = answer;
    if (answer.error) tell(answer.error);
    else if (answer.order === "natural") tell("No token order is better than the natural one: these are the natural tiles.");
    else {
      tell(h("b", {}, `Order “${answer.order}”: `), `${whole(reordered.full)} full and ${whole(reordered.partial)} partial tiles; natural ${whole(natural.full)} and ${whole(natural.partial)}. `,
        `Predicted ${figures(reordered.ms)} ms, natural ${figures(natural.ms)} ms, permuting not counted. Places on the axes are not token numbers.`);
    }
  };
  store.on("look", (change) => "mode" in change && refresh());
  store.on("design", ({ draft }) => draft || refresh());
  return note;
}
