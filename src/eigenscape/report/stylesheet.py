"""The page's style: readable by day, by night and on paper."""

CSS = """
:root{color-scheme:light dark;--paper:#fff;--card:#f5f7f9;--ink:#1b1f24;--muted:#5d6772;--grid:#d8dde3;--blue:#0072b2;
--vermillion:#d55e00;--green:#007a59;--purple:#a64d86;--amber:#b37a00}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1d2228;--ink:#e6eaee;--muted:#9aa5b1;--grid:#343c45;
--blue:#56b4e9;--vermillion:#f28e4b;--green:#2fc79a;--purple:#d98abf;--amber:#e9b44c}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",
sans-serif}
main{max-width:54rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .5rem}
h2{font-size:1.2rem;margin:2.75rem 0 .5rem}
header p{color:var(--muted);margin:0}
p{margin:.5rem 0;max-width:46rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.75rem;margin:1.75rem 0 0}
.fact{background:var(--card);border:1px solid var(--grid);border-radius:.5rem;padding:.75rem 1rem}
dt{color:var(--muted);font-size:.85rem}
dd{margin:0}
dd strong{display:block;font-size:1.45rem;line-height:1.3;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.certificate,.meaning{display:block;font-size:.82rem;font-variant-numeric:tabular-nums}
.meaning{color:var(--muted)}
figure{margin:1rem 0}
figure svg{display:block;width:100%;height:auto}
figcaption{font-size:.9rem;color:var(--muted);margin-top:.5rem;max-width:46rem}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}
th{color:var(--muted);font-weight:600}
td.number,th.number{text-align:right;white-space:nowrap}
td.text{overflow-wrap:anywhere}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--grid);color:var(--muted);font-size:.85rem}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--muted:#444;--grid:#ccc;--blue:#0072b2;--vermillion:#d55e00;
--green:#007a59;--purple:#a64d86;--amber:#b37a00}main{max-width:none;padding:0}section,figure,.fact{break-inside:avoid}
h2{break-after:avoid}body{font-size:11pt}}
"""
