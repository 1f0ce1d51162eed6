// Colours that the canvas paints with, for light and dark. Blue and orange stay apart for every kind of colour-blindness,
// and partial tiles are hatched besides; layer colours are those of Okabe and Ito (2008), made a little deeper or lighter.

export const PALETTES = {
  light: {
    plot: "#ffffff", outside: "#f1f3f6", grid: "rgba(20, 30, 50, .10)", gridStrong: "rgba(20, 30, 50, .22)", frame: "#8a94a6",
    full: "#2f66c9", partialLow: "#fdeacb", partialHigh: "#e0861f", hatch: "rgba(140, 70, 0, .38)", waste: "#fdeacb",
    ink: "#11151c", halo: "rgba(255, 255, 255, .9)", ruler: "#5b6472", mismatch: "#ff00c8", guide: "#d6249f", rowBand: "rgba(20, 30, 50, .07)",
    layers: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b78b00", "#6a4fb3", "#7a7a7a"],
  },
  dark: {
    plot: "#14181f", outside: "#0d1015", grid: "rgba(220, 230, 255, .09)", gridStrong: "rgba(220, 230, 255, .20)", frame: "#5c6675",
    full: "#5b8ff0", partialLow: "#3d2c14", partialHigh: "#f0a245", hatch: "rgba(255, 205, 140, .34)", waste: "#3d2c14",
    ink: "#f4f6fa", halo: "rgba(8, 10, 14, .9)", ruler: "#9aa5b5", mismatch: "#ff4bdc", guide: "#ff7ad9", rowBand: "rgba(220, 230, 255, .08)",
    layers: ["#4aa8e0", "#ff8a3d", "#2fc79a", "#e59cc6", "#8fd0f5", "#e8c33a", "#a48bf0", "#a8a8a8"],
  },
};

export function layerColour(palette, index) {
  return palette.layers[index % palette.layers.length];
}

/** Whether the page around `element` is dark, from the colour that is really behind it. */
export function isDark(element) {
  const declared = document.body.dataset.jpThemeLight;
  if (declared !== undefined) return declared === "false";
  for (let at = element; at; at = at.parentElement) {
    const found = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?/.exec(getComputedStyle(at).backgroundColor);
    if (found && found[4] !== "0") return 0.299 * found[1] + 0.587 * found[2] + 0.114 * found[3] < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
