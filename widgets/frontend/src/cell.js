// Code into the notebook, as a new cell under the Studio's. JupyterLab shows a widget its notebook; others don't.

/** The notebook's shared model where this front end has one, or null. */
function notebookOf(model) {
  const shared = model.widget_manager?.context?.model?.sharedModel;
  return typeof shared?.insertCell === "function" ? shared : null;
}

export const canInsert = (model) => notebookOf(model) !== null;

/** Inserts a code cell under the one that shows `element`, or at the end; true if the notebook took it. */
export function insertCell(model, element, source) {
  const notebook = notebookOf(model);
  if (!notebook) return false;
  const own = element.closest(".jp-Cell")?.dataset.windowedListIndex;
  const place = own === undefined ? notebook.cells.length : Number(own) + 1;
  notebook.insertCell(place, { cell_type: "code", source, metadata: {} });
  return true;
}
