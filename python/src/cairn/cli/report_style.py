"""The style sheet of the report, for light and dark screens, and for paper.

Layer: cli.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f8fa; --card: #ffffff; --text: #1f2328; --faint: #59636e; --rule: #d1d9e0;
  --bar: #0b6bcb; --area: #0b6bcb26; --over: #0b6bcb1a; --a: #b35900; --b: #7a3fb5;
  --error: #b42318; --warning: #8f5b00; --note: #59636e; --good: #1a7f37;
  --h1: #cfe3f7; --h2: #86b8ea; --h3: #2f7fd0; --h4: #d9822b; --h5: #b42318;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #161b22; --text: #f0f6fc; --faint: #9198a1; --rule: #3d444d;
    --bar: #4ea1ff; --area: #4ea1ff33; --over: #4ea1ff26; --a: #f0a35e; --b: #c297f5;
    --error: #ff8e84; --warning: #e3b341; --note: #9198a1; --good: #57c26d;
    --h1: #1d3450; --h2: #2a5c94; --h3: #4ea1ff; --h4: #f0a35e; --h5: #ff6a5e;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 20px; margin: 40px 0 8px; }
h3 { font-size: 16px; margin: 0 0 2px; overflow-wrap: anywhere; }
p { margin: 4px 0 12px; }
.faint, figcaption p, .sub { color: var(--faint); font-size: 13px; }
code, .key { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; font-size: 13px; overflow-wrap: anywhere; unicode-bidi: isolate; }
nav { margin: 16px 0 0; display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 14px; }
a { color: var(--bar); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 2px solid var(--bar); outline-offset: 2px;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin: 20px 0 0; padding: 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 10px 14px; }
.tile dt { color: var(--faint); font-size: 13px; }
.tile dd { margin: 0; font-size: 22px; line-height: 1.3; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile dd.sub { font-size: 13px; line-height: 1.4; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 16px; align-items: start; margin: 0 0 16px; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
figure, .card { margin: 0 0 16px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; padding: 14px 16px; min-width: 0; }
.cards > figure, .cards > .card { margin: 0; }
figcaption p { margin: 0 0 10px; }
.plot { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 4px 8px;
  font-size: 12px; color: var(--faint); font-variant-numeric: tabular-nums; }
.plot svg { width: 100%; height: 150px; overflow: visible; display: block; }
.small .plot svg { height: 90px; }
.plot .y { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; line-height: 1; margin: -6px 0; white-space: nowrap; }
.plot .x { grid-column: 2; display: flex; justify-content: space-between; gap: 8px; }
.plot .x.each { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr);
  gap: 0; text-align: center; }
.bar { fill: var(--bar); }
.area { fill: var(--area); }
.line, .dot, .grid, .mark { fill: none; vector-effect: non-scaling-stroke; }
.line { stroke: var(--bar); stroke-width: 2; stroke-linejoin: round; }
.dot { stroke: var(--bar); stroke-width: 6; stroke-linecap: round; }
.grid { stroke: var(--rule); stroke-width: 1; }
.mark { stroke-width: 2; stroke-dasharray: 5 3; }
.mark.a { stroke: var(--a); }
.mark.b { stroke: var(--b); }
b.a { color: var(--a); }
b.b { color: var(--b); }
.over { fill: transparent; }
.over:hover { fill: var(--over); }
.share { width: 72px; height: 8px; background: var(--rule); border-radius: 2px; margin-left: 8px;
  vertical-align: 1px; }
.heat { display: flex; flex-wrap: wrap; gap: 2px; margin: 8px 0; }
.heat i, .legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--faint); }
.h0 { box-shadow: inset 0 0 0 1px var(--rule); }
.h1 { background: var(--h1); } .h2 { background: var(--h2); } .h3 { background: var(--h3); }
.h4 { background: var(--h4); } .h5 { background: var(--h5); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: min(100%, 520px); font-size: 14px; }
caption { text-align: left; color: var(--faint); font-size: 13px; padding: 0 0 4px; }
th, td { text-align: left; vertical-align: top; padding: 5px 20px 5px 0;
  border-bottom: 1px solid var(--rule); }
th { color: var(--faint); font-weight: 600; font-size: 13px; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
details { margin: 10px 0 0; }
summary { cursor: pointer; color: var(--faint); font-size: 13px; }
details .scroll { max-height: 420px; overflow-y: auto; margin-top: 6px; }
.error, .warning, .note { font-weight: 600; }
.error { color: var(--error); } .warning { color: var(--warning); } .note { color: var(--note); }
.good { color: var(--good); }
td > code, td > .name { white-space: nowrap; }
.prose { display: block; min-width: 240px; overflow-wrap: anywhere; }
.key { display: block; min-width: 200px; }
.card > :first-child, .card > p:first-child { margin-top: 0; }
.card > p:last-child { margin-bottom: 0; }
footer { margin-top: 40px; color: var(--faint); font-size: 13px; }
@media (max-width: 560px) {
  main { padding: 16px 12px 48px; }
  .tiles { grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); }
  th, td { padding-right: 12px; }
  figure, .card { padding: 12px; }
}
@media print {
  body { background: none; }
  figure, .card, .tile { break-inside: avoid; }
  details .scroll { max-height: none; }
}
"""
