// The connection to Python: traits, and nothing but traits, because they have back-pressure and the latest value wins.
//   design   both ways: the layers, the plane, the tile size, with a revision
//   report   from Python: numbers of the compiled design; tile_data beside it: counts and classes of tiles
//   asks, answers   by kind ("code", "tile", "template"): a question that only Python can answer

const DRAFT_MS = 90; // at most so often is a design sent while it is dragged
const DRAFT_BYTES = 200_000; // larger ones wait for the end of the drag
const PATIENCE_MS = 8000; // a kernel that has not answered for so long is said to be busy

export class Link {
  constructor(model, store, engine) {
    Object.assign(this, { model, store, engine, asked: 0, waiting: new Map(), state: "live" });
    store.on("design", (detail) => this.send(detail));
    this.onDesign = () => {
      const design = model.get("design");
      if (design?.rev && !design.rev.startsWith(`${store.session}:`)) store.adopt(design);
    };
    this.onReport = () => this.receive(model.get("report"));
    this.onAnswers = () => this.deliver(model.get("answers") ?? {});
    this.onProblem = () => store.emit("problem", model.get("problem"));
    model.on("change:design", this.onDesign);
    model.on("change:report", this.onReport);
    model.on("change:answers", this.onAnswers);
    model.on("change:problem", this.onProblem);
    this.timer = setInterval(() => this.watch(), 1000);
  }

  start() {
    this.receive(this.model.get("report"));
  }

  send({ draft, outside }) {
    if (outside) return;
    clearTimeout(this.later);
    const now = performance.now();
    if (draft) {
      const wait = DRAFT_MS - (now - (this.sent ?? 0));
      if (wait > 0) {
        this.later = setTimeout(() => this.push(true), wait);
        return;
      }
    }
    this.push(draft);
  }

  push(draft) {
    const { design } = this.store;
    if (draft && this.sizeOf(design) > DRAFT_BYTES) return;
    this.sent = performance.now();
    this.unanswered ??= this.sent;
    this.model.set("design", { ...design, draft });
    this.model.save_changes();
  }

  /** Rough size of a design on the wire; only explicit masks and long lists weigh. */
  sizeOf({ layers }) {
    const weigh = (value) => (Array.isArray(value) ? value.reduce((sum, part) => sum + weigh(part), 0)
      : value && typeof value === "object" ? Object.values(value).reduce((sum, part) => sum + weigh(part), 8) : 8);
    return weigh(layers.map((layer) => layer.node));
  }

  receive(report) {
    if (!report?.rev) return;
    this.report = report;
    this.unanswered = null;
    this.setState("live");
    const view = this.model.get("tile_data");
    if (report.ok && view?.byteLength) {
      const buffer = view.buffer ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) : view;
      const rows = report.q_tiles;
      this.engine.compare({
        rev: report.rev, full: new Int32Array(buffer, 0, rows), partial: new Int32Array(buffer, 4 * rows, rows),
        classes: report.classes ? new Uint8Array(buffer, 8 * rows) : null,
      });
    }
    this.store.emit("report", report);
  }

  /** Asks Python; the answer comes as the promise's value. A newer question of the same kind replaces an older one. */
  ask(kind, question) {
    this.asked += 1;
    const n = `${this.store.session}:${this.asked}`;
    this.model.set("asks", { ...this.model.get("asks"), [kind]: { ...question, n } });
    this.model.save_changes();
    this.unanswered ??= performance.now();
    return new Promise((resolve) => this.waiting.set(kind, { n, resolve }));
  }

  deliver(answers) {
    this.unanswered = null;
    for (const [kind, answer] of Object.entries(answers)) {
      const waiting = this.waiting.get(kind);
      if (waiting?.n !== answer.n) continue;
      this.waiting.delete(kind);
      waiting.resolve(answer);
    }
  }

  /** Looks once a second whether there is still a kernel behind the widget. */
  watch() {
    const kernel = this.model.widget_manager?.kernel ?? null;
    const gone = kernel && (kernel.isDisposed || ["dead", "restarting", "autorestarting", "terminating", "unknown"].includes(kernel.status)
      || kernel.connectionStatus === "disconnected");
    if (gone || this.closed) this.setState("lost");
    else if (this.unanswered && performance.now() - this.unanswered > PATIENCE_MS) this.setState("busy");
    else if (this.state === "busy" && !this.unanswered) this.setState("live");
  }

  setState(state) {
    // A kernel that restarted is a new one: it does not know this Studio, whatever its status says.
    if (this.state === state || this.state === "lost") return;
    this.state = state;
    this.store.emit("connection", state);
  }

  dispose() {
    clearInterval(this.timer);
    clearTimeout(this.later);
    this.model.off("change:design", this.onDesign);
    this.model.off("change:report", this.onReport);
    this.model.off("change:answers", this.onAnswers);
    this.model.off("change:problem", this.onProblem);
  }
}
