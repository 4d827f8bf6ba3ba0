"""Random Markdown: as models write, nested, and hostile (any marks next to each other)."""

from random import Random

WORDS = [
    "alpha",
    "beta",
    "the service",
    "settings",
    "mint dev",
    "*em*",
    "**bold words here**",
    "`code span`",
    "``a ` b``",
    "[how to](/login)",
    "[full](https://docs.acme.com/x)",
    '[titled](/p "a title")',
    "[paren](/a_(b))",
    "![pic](/i.png)",
    "[ref][r]",
    "<https://a.b/c>",
    "a_b_c",
    "5 * 3",
    "x\\*y",
    "日本語",
    "😀",
    "~~gone~~",
    "[a `b` c](/d)",
    "**[link](/in-bold)**",
    "`[no](/link)`",
    "\\[no](/x)",
]
CODE = [
    "npm i",
    "[x](/in-code)",
    "if a:",
    "    return 1",
    "# c",
    "- x",
    "",
    "> q",
    "a  b",
    "\tx",
    "`t`",
    "**b**",
]


def para(r: Random, n: int | None = None):
    return " ".join(r.choice(WORDS) for _ in range(n or r.randint(2, 14)))


def fence(r: Random):
    m = r.choice(["```", "```", "```", "~~~", "````"])
    info = r.choice(["", "sh", "python title=x", "md"])
    body = [r.choice(CODE) for _ in range(r.randint(0, 6))]
    if m == "````":
        body += ["```", "[x](/in-code)", "```"]
    return [m + info, *body, m + r.choice(["", "", "`" if m[0] == "`" else "~"])]


def block(r: Random, depth: int = 0):
    k = r.random()
    if k < 0.30 or depth > 3:
        return [para(r)] if r.random() < 0.8 else [para(r, 4) + r.choice(["", "  ", "\\"]), para(r, 5)]
    if k < 0.45:
        return fence(r)
    if k < 0.50:
        return [
            "    " + c if c else ""
            for c in (r.choice([c for c in CODE if c]) for _ in range(r.randint(1, 4)))
        ]
    if k < 0.54:
        return ["#" * r.randint(1, 4) + " " + para(r, 3)]
    if k < 0.57:
        return ["| a | b |", "|---|---|", *("| " + para(r, 1) + " | y |" for _ in range(r.randint(1, 4)))]
    if k < 0.59:
        return ["---"]
    if k < 0.90:
        out, style, loose, num = (
            [],
            r.choice(["-", "*", "1.", "1)", "+"]),
            r.random() < 0.4,
            r.choice([1, 1, 9]),
        )
        for i in range(r.randint(1, 4)):
            mark = f"{num + i}{style[1]}" if style[0] == "1" else style
            pad = r.choice([1, 1, 1, 2, 3])
            width = len(mark) + pad
            inner = block(r, depth + 1) if r.random() < 0.25 else [para(r, r.randint(1, 8))]
            while r.random() < 0.4:
                if r.random() < 0.6:
                    inner.append("")
                inner += block(r, depth + 1)
            over = r.choice([0, 0, 0, 1])
            out += [
                mark + " " * pad + inner[0],
                *((" " * (width + over) + line if line else "") for line in inner[1:]),
            ]
            if loose:
                out.append("")
        return out
    inner = block(r, depth + 1)
    return [r.choice(["> ", "> ", ">"]) + line for line in inner]


def document(r: Random, blocks: int | None = None):
    out = []
    for _ in range(blocks or r.randint(2, 9)):
        out += block(r)
        if r.random() < 0.9:
            out.append("")
    if r.random() < 0.4:
        out += ["```suggestions", "(Quickstart)[/quickstart]", "- [B](/b)", "```"]
    if r.random() < 0.1:
        out += ["", para(r)]
    return "\n".join(out)


PREFIX = [
    "",
    "",
    "",
    " ",
    "  ",
    "   ",
    "    ",
    "     ",
    "      ",
    "\t",
    "> ",
    ">",
    "> > ",
    "- ",
    "* ",
    "1. ",
    "2. ",
    "10) ",
    "-   ",
    "-     ",
    "1.",
    "-",
    "  - ",
    "   1. ",
    ">  - ",
    " \t",
    "- - ",
]
TAIL = [
    "",
    "a",
    "word two",
    "```",
    "```sh",
    "~~~",
    "~~~~",
    "````",
    "```suggestions",
    "# h",
    "---",
    "===",
    "***",
    "- - -",
    "`` x ``` y",
    "```js``` in",
    "[a](/b)",
    "| a |",
    "    x",
    "`[a](/b)`",
    "``` ",
    "* * *",
    "_x_",
    "(T)[/p]",
]


def hostile(r: Random):
    return "\n".join(
        r.choice(PREFIX) + r.choice(PREFIX if r.random() < 0.2 else [""]) + r.choice(TAIL)
        for _ in range(r.randint(1, 14))
    )


# As models write: little nesting, even indentation, blank lines around blocks.
SENT = [
    "Open the **settings** page of your workspace.",
    "Run `mint dev` and wait until the preview is ready.",
    "See [how to log in](/login) for the details.",
    "The service reads `docs.json` first.",
    "Then press *Save*, and **share the page with your team**.",
    "It costs 5 * 3 credits a month.",
    'Read [the guide](/guides/sso "SSO") or [the API](/api-reference/pages).',
    "![A picture](/images/a.png)",
    "Note that `[a](/b)` is Markdown for a link.",
    "Keys begin with mint_ and are secret.",
]


def sentences(r: Random, n):
    return " ".join(r.choice(SENT) for _ in range(n))


def rfence(r: Random):
    lang, body = r.choice(
        [
            ("sh", ["npm i -g mint", "mint dev"]),
            ("json", ["{", '  "name": "Docs",', "", '  "links": ["/a"]', "}"]),
            ("md", ["# Title", "", "See [x](/in-code)."]),
            ("python", ["def f():", "    return 1", "", "f()"]),
            ("mdx", ["<Note>", "[x](/in-code)", "</Note>"]),
            ("", ["[x](/in-code)"]),
            ("md", ["- a", "  - b", "> q"]),
        ]
    )
    m = r.choice(["```"] * 6 + ["~~~", "````"])
    if lang == "md" and m == "````":
        body = [*body, "```sh", "npm i", "```"]
    return [m + lang, *body * r.choice([1, 1, 1, 3]), m]


def ritem(r: Random, mark, depth):
    ind = " " * (len(mark) + 1) if r.random() < 0.8 else " " * 4
    style = r.random()
    out = [mark + " " + sentences(r, r.randint(1, 3))]
    if style < 0.12:
        f = rfence(r)
        return [mark + " " + f[0], *(ind[: len(mark) + 1] + line if line else "" for line in f[1:])]
    if r.random() < 0.35:
        if r.random() < 0.5:
            out.append("")
        out += [ind + line if line else "" for line in rfence(r)]
    if depth < 2 and r.random() < 0.25:
        sub = r.choice(["-", "*", "1."])
        for i in range(r.randint(1, 3)):
            out += [
                ind + line if line else ""
                for line in ritem(r, sub if sub != "1." else f"{i + 1}.", depth + 1)
            ]
    return out


def realistic(r: Random):
    out = []
    for _ in range(r.randint(3, 9)):
        k = r.random()
        if k < 0.35:
            out += [sentences(r, r.randint(1, 8)), ""]
        elif k < 0.5:
            out += ["## " + r.choice(["Sign in", "Set up", "Next steps"]), ""]
        elif k < 0.65:
            out += [*rfence(r), ""]
        elif k < 0.9:
            mark, loose = r.choice(["-", "-", "*", "1.", "1."]), r.random() < 0.4
            for i in range(r.randint(2, 6)):
                out += ritem(r, f"{i + 1}." if mark == "1." else mark, 0)
                if loose:
                    out.append("")
            if not loose:
                out.append("")
        elif k < 0.95:
            out += [
                "> " + sentences(r, r.randint(1, 3)),
                *(["> " + line if line else ">" for line in ["", *rfence(r)]] if r.random() < 0.4 else []),
                "",
            ]
        else:
            out += [
                "| Plan | Price |",
                "|---|---|",
                *("| `p` | [x](/p) |" for _ in range(r.randint(1, 5))),
                "",
            ]
    if r.random() < 0.5:
        out += ["```suggestions", "(Quickstart)[/quickstart]", "- [B](/b)", "```"]
    return "\n".join(out)
