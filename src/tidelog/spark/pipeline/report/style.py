"""Colours and forms, for the page and for the picture. No CSS variables: not every viewer of pictures has them."""

from __future__ import annotations

from typing import Final

FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'

_LIGHT: Final = {
    "paper": "#ffffff",
    "card": "#ffffff",
    "rim": "#e2e6ec",
    "ink": "#16202e",
    "soft": "#5c6878",
    "grid": "#edf0f4",
    "base": "#aeb8c4",
    "good": "#12805c",
    "bad": "#c8372d",
    "warn": "#9a6700",
    "good_back": "#e3f5ee",
    "bad_back": "#fdebe9",
    "warn_back": "#fdf3d8",
    "node": "#f5f7fa",
    "c1": "#2563c9",
    "c2": "#b45f06",
    "c3": "#7446b8",
    "c4": "#0e7c86",
    "c5": "#b0306a",
}
_DARK: Final = {
    "paper": "#10151c",
    "card": "#171e27",
    "rim": "#2a333f",
    "ink": "#e6ebf1",
    "soft": "#95a2b2",
    "grid": "#232c37",
    "base": "#566273",
    "good": "#4cc79a",
    "bad": "#ff7b70",
    "warn": "#e3b341",
    "good_back": "#12352a",
    "bad_back": "#42201d",
    "warn_back": "#3a2e10",
    "node": "#1d2631",
    "c1": "#6ea8ff",
    "c2": "#f0a35b",
    "c3": "#b794f4",
    "c4": "#4fc3cc",
    "c5": "#f284b1",
}

_DRAWING: Final = """
svg text{font-family:%FONT%;fill:$ink}
.back{fill:$paper}
.tick{font-size:11px;fill:$soft}
.end{text-anchor:end}.middle{text-anchor:middle}
.grid{stroke:$grid;stroke-width:1}
.base{stroke:$base;stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.stem{stroke-width:1.2;opacity:.45}
.area{opacity:.16}
.hit{fill:transparent}
.c1{stroke:$c1}.c2{stroke:$c2}.c3{stroke:$c3}.c4{stroke:$c4}.c5{stroke:$c5}
.f1{fill:$c1}.f2{fill:$c2}.f3{fill:$c3}.f4{fill:$c4}.f5{fill:$c5}
.event{stroke-width:1;stroke-dasharray:3 3}
.event.good{stroke:$good}.event.bad{stroke:$bad}
.flag.good{fill:$good}.flag.bad{fill:$bad}
.node{fill:$node;stroke:$rim;stroke-width:1}
.edge{fill:none;stroke:$base;stroke-width:1.4}
.arrow{fill:$base}
.track{fill:$grid}
.name{font-size:13px;font-weight:600}
.sub{font-size:11px;fill:$soft}
.head{font-size:11px;fill:$soft;letter-spacing:.06em}
.state.good{fill:$good}.state.bad{fill:$bad}.state.warn{fill:$warn}
.big{font-size:27px;font-weight:700}
.when{font-size:13px;fill:$soft}
.figure{font-size:21px;font-weight:700}
.chart-title{font-size:13px;font-weight:600}
.pill.good{fill:$good_back}.pill.bad{fill:$bad_back}.pill.warn{fill:$warn_back}
.pill-text{font-size:13px;font-weight:600}
.pill-text.good{fill:$good}.pill-text.bad{fill:$bad}.pill-text.warn{fill:$warn}
.frame{fill:$card;stroke:$rim;stroke-width:1}
"""

_PAGE: Final = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:$paper;color:$ink;font:15px/1.5 %FONT%}
main{max-width:1160px;margin:0 auto;padding:36px 24px 64px}
h1{font-size:32px;line-height:1.15;margin:0;letter-spacing:-.02em;overflow-wrap:anywhere}
h2{font-size:20px;margin:44px 0 14px;letter-spacing:-.01em}
h3{font-size:14px;margin:0;font-weight:600}
p{margin:6px 0}
.soft{color:$soft}
.small{font-size:13px}
header{display:flex;flex-wrap:wrap;gap:10px 18px;align-items:center}
.verdict{border-radius:999px;padding:4px 14px;font-weight:600;font-size:14px}
.verdict.good{background:$good_back;color:$good}
.verdict.bad{background:$bad_back;color:$bad}
.verdict.warn{background:$warn_back;color:$warn}
.badge{border-radius:999px;padding:1px 9px;font-size:12px;font-weight:600;white-space:nowrap}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:26px 0 0;padding:0}
.tile{border:1px solid $rim;border-radius:12px;background:$card;padding:12px 16px}
.tile b{display:block;font-size:24px;line-height:1.25;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.tile span{color:$soft;font-size:13px}
.card{border:1px solid $rim;border-radius:12px;background:$card;padding:16px 18px;margin:0 0 14px;overflow-x:auto}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px}
.charts .card{margin:0;padding:14px 16px 8px}
.chart-head{display:flex;justify-content:space-between;gap:12px;align-items:baseline}
.chart-head span{color:$soft;font-size:12px;text-align:right}
svg{display:block;max-width:100%}
svg.chart,svg.bars{width:100%;height:auto}
svg.bars{margin:8px 0}
summary{font-size:13px;color:$soft;cursor:pointer;margin:8px 0}
svg.graph{height:auto;margin:0 auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:$soft;font-weight:500;font-size:12px;padding:4px 14px 8px 0}
th{border-bottom:1px solid $rim;white-space:nowrap}
td{padding:7px 14px 7px 0;border-bottom:1px solid $grid;vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
.key{display:flex;flex-wrap:wrap;gap:4px 20px;margin:40px 0 -28px}
.key b.good{color:$good}.key b.bad{color:$bad}
.error{color:$bad;font-size:14px;overflow-wrap:anywhere}
.audit-head{display:flex;gap:12px;align-items:center;margin-bottom:10px}
.badge.good{background:$good_back;color:$good}.badge.bad{background:$bad_back;color:$bad}.badge.warn{background:$warn_back;color:$warn}
td.good{color:$good}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
.time{white-space:nowrap;font-variant-numeric:tabular-nums;color:$soft}
.nowrap{white-space:nowrap}
td.bad{color:$bad;font-weight:600}
ul{margin:10px 0 0;padding-left:20px}
li.bad{color:$bad}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{margin-top:48px;color:$soft;font-size:13px;border-top:1px solid $rim;padding-top:14px}
@media print{.card,.tile{break-inside:avoid}}
"""


def drawing() -> str:
    """Of a picture by itself, in the light or the dark."""
    return _both(_DRAWING)


def page() -> str:
    return _both(_PAGE + _DRAWING)


def _both(rules: str) -> str:
    return f"{_filled(rules, _LIGHT)}@media (prefers-color-scheme:dark){{{_filled(rules, _DARK)}}}"


def _filled(rules: str, colors: dict[str, str]) -> str:
    for name in sorted(colors, key=len, reverse=True):
        rules = rules.replace(f"${name}", colors[name])
    return rules.replace("%FONT%", FONT).strip()
