"""Equations as docstrings write them, in Unicode, turned into LaTeX: `latex("W = C_w⁻¹")` is `W = C_{w}^{-1}`.

The notation of the docstrings is that of plain text: `x_ij` has the subscript ij, `S_lwV` is S with subscript lw times
V, `⁻¹` is an exponent, `√(…)` a root, `Σ_i a_i` a sum and `Σ⁻¹` a covariance, words are words. Two spaces, or a new
line, part what is shown on lines of its own.
"""

from __future__ import annotations

import re
import unicodedata

SIGNS = {
    "−": "-", "·": r"\cdot ", "×": r"\times ", "∘": r"\circ ", "⊙": r"\odot ", "⊗": r"\otimes ",
    "♯": r"\sharp ",
    "∝": r"\propto ", "∈": r"\in ", "∉": r"\notin ", "⊂": r"\subset ", "⊆": r"\subseteq ", "⊇": r"\supseteq ",
    "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "≥": r"\geq ", "≤": r"\leq ", "≠": r"\neq ", "≈": r"\approx ",
    "≻": r"\succ ", "⪰": r"\succeq ", "≺": r"\prec ",
    "⪯": r"\preceq ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "→": r"\to ", "←": r"\leftarrow ",
    "↦": r"\mapsto ", "∞": r"\infty ", "∂": r"\partial ", "∇": r"\nabla ", "‖": r"\Vert ",
    "|": r"\vert ", "…": r"\dots ",
    "±": r"\pm ", "∓": r"\mp ", "∼": r"\sim ", "~": r"\sim ", "ℓ": r"\ell ", "½": r"\tfrac{1}{2}", "¼": r"\tfrac{1}{4}",
    "¾": r"\tfrac{3}{4}", "∫": r"\int ", "∏": r"\prod ", "∅": r"\emptyset ", "%": r"\%", "#": r"\#", "&": r"\&",
    "<": "<", ">": ">", "=": "=", "+": "+", "-": "-", "/": "/", ":": ":", ";": ";", ",": ",", ".": ".", "!": "!",
    "(": "(", ")": ")", "[": "[", "]": "]", "{": r"\{", "}": r"\}", "$": r"\$", "ℝ": r"\mathbb{R}", "ᵢ": "i",
}  # fmt: skip
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "varepsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "varphi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda",
    "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀⁿʳ", [*"0123456789+-", r"\top ", "n", "r"]))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₖ", "0123456789+-k"))
ACCENTS = {"\u0303": "tilde", "\u0302": "hat", "\u0304": "bar", "\u0307": "dot"}
# upright, with what stands below them in display
OPERATORS = {
    *("min", "max", "argmin", "argmax", "mean", "log", "exp", "det", "tr", "diag", "cos", "sin", "tan", "tanh", "atan"),
    *("var", "cov", "Cov", "eig", "rank", "sign", "clip", "softmax", "rk", "card"),
}
KNOWN = {"min", "max", "log", "exp", "det", "cos", "sin", "tan", "tanh"}  # LaTeX has a command of that name
# upright names of more than one letter
NAMES = {
    *("KL", "HSIC", "CE", "BCE", "AP", "LMNN", "NCA", "LLE", "SupAP", "ArcFace", "IntraPairVariance", "Laplacian"),
    *("RelativeML", "reg", "reg_privileged", "pos", "neg", "power", "scale", "margin", "penalty", "Sim", "Dis", "sym"),
    *("near", "far", "gen", "metric", "one_vs_rest", "crammer_singer", "query_to_doc", "query_to_query", "doc_to_doc"),
}
LIMITS = (r"\sum", r"\prod", r"\min", r"\max", r"\operatorname", r"\int")  # LaTeX parts these from what follows
PROSE_OF_TWO = {"of", "or", "in", "if", "is", "by", "to", "on", "as", "at", "an", "so", "be", "it", "no", "up"}
WORD = re.compile(r"[A-Za-z]+(?:_[a-z]+(?:_[a-z]+)*)?(?:-[a-z]+)*")
FOLLOWS_A_SUM = re.compile(r"\s+(?:−[^\s]|[^\s=+−≻⪰≺⪯≤≥<>,;:)\]}∈&·/-])")


def latex(text: str) -> str:
    """One line of an equation."""
    read = _Line("".join(map(_parted, unicodedata.normalize("NFC", text)))).read()
    return read.replace(r" (\text{“", r"\ (\text{“")  # a name of a choice is no argument


def _parted(char: str) -> str:
    """A letter and its accent; other signs stay as they are."""
    parts = unicodedata.normalize("NFD", char)
    return parts if parts[1:] and set(parts[1:]) <= ACCENTS.keys() else char


def lines(equation: str) -> list[str]:
    """The lines on which an equation is shown, as LaTeX: parted at new lines, and at two spaces where it is long."""
    out: list[str] = []
    for row in equation.splitlines():
        current = ""
        for part in _wholes([part for part in re.split(r"\s{2,}", row.strip()) if part]):
            joined = f"{current}  {part}" if current else part
            if current and len(joined) > 62:
                out.append(current)
                current = part
            else:
                current = joined
        if current:
            out.append(current)
    return [r" \quad ".join(filter(None, map(latex, re.split(r"\s{2,}", line)))) for line in out]


def _wholes(parts: list[str]) -> list[str]:
    """The parts, with words that lead to a part before it."""
    out: list[str] = []
    for part in parts:
        if out and _leads(out[-1]):
            out[-1] += f"  {part}"
        else:
            out.append(part)
    return out


def _leads(part: str) -> bool:
    """Whether a part ends with words that belong to what follows."""
    return part.endswith(("subject to", "s.t.", "solved by", "minimises", " of", "then", "where"))


def display(equation: str) -> str:
    """The body of a display, of one line or several."""
    found = lines(equation)
    if len(found) == 1:
        return found[0]
    return "\\begin{aligned}\n" + " \\\\\n".join(f"& {line}" for line in found) + "\n\\end{aligned}"


class _Line:
    """Reads a line from left to right; text is written once it is over."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def read(self, until: str = "") -> str:
        """Up to a closing sign, or to the end."""
        out: list[str] = []
        words: list[str] = []

        def flush() -> None:
            if words:
                lead = " " if out and not out[-1].endswith(("(", "[")) else ""
                trail = "" if self.text[self.at : self.at + 1] in ("", *")],;:.") else " "
                out.append(rf"\text{{{lead}{' '.join(words)}{trail}}}")
                words.clear()

        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if until and char == until and depth == 0:
                break
            if until == "}" and char in "{}":
                depth += 1 if char == "{" else -1
            if until == ")" and char in "()":
                depth += 1 if char == "(" else -1
            if char.isspace():
                self.at += 1
                if not words and out and not out[-1].endswith((" ", "{")):
                    wide = self.text[self.at : self.at + 1] in ("(", "[", "|", "‖")  # LaTeX leaves no room before these
                    apart = wide if out[-1].startswith(LIMITS) else self._between_factors()
                    out.append(r"\, " if apart else " ")
                elif not words and out and out[-1].endswith(" ") and self._between_factors():
                    out.append(r"\, ")
                continue
            prose = self._prose(bool(words))
            if prose:
                words.append(prose)
                continue
            if words and char in ",;:" and self._prose_follows():
                words[-1] += char
                self.at += 1
                continue
            flush()
            out.append(self._atom())
        flush()
        return re.sub(r" {2,}", " ", "".join(out)).strip()

    def _between_factors(self) -> bool:
        """Whether the space just passed stands between two factors, which LaTeX would put together."""
        before, after = self.text[: self.at - 1], self.text[self.at :]
        if not before or not after or not (before[-1].isalnum() or before[-1] in "}⁺⁻'*′"):
            return False
        word = re.match(r"[A-Za-z]{2,}", after)
        if word and (word[0] in OPERATORS or word[0].islower()):
            return word[0] in NAMES and not re.search(r"(?:^|\W)[a-z]{3,}$", before)
        last = re.search(r"[A-Za-z]+$", before)
        if last and last[0] in OPERATORS:
            return False
        return (after[0].isalnum() and after[0] not in "ΣΠ") or bool(re.match(r"[|‖]\S", after))

    # words
    def _prose(self, amid_words: bool) -> str:
        """A word of prose at this place, read; "" if what stands here is mathematics."""
        if self.text[self.at] == '"':
            end = self.text.find('"', self.at + 1)
            if end > 0:
                word = self.text[self.at + 1 : end]
                self.at = end + 1
                return f"“{word}”"
        if self.at and self.text[self.at - 1] in "_^":
            return ""
        if self.text.startswith("s.t.", self.at):
            self.at += 4
            return "s.t."
        match = re.compile(r"[A-Za-z]+(?:[-'’][a-z]+)*\.?(?=$|[\s,;:()\"…])").match(self.text, self.at)
        if not match:
            return ""
        word = match[0].rstrip(".")
        if not self._is_prose(word, amid_words, self.at + len(word)):
            return ""
        self.at += len(word)
        return word

    def _is_prose(self, word: str, amid_words: bool, end: int) -> bool:
        if word in OPERATORS or word in NAMES:
            rest = self.text[end:]
            return amid_words and (
                (word == "mean" and bool(re.match(r" [a-z]{3,}\b", rest))) or (word == "sign" and rest[:1] == ";")
            )
        if len(word) == 1:
            after = re.match(r"\s(\w+)", self.text[end:])
            return word == "a" and amid_words and bool(after) and self._is_prose(after[1], True, end + after.end())
        if len(word) == 2:
            return word in PROSE_OF_TWO and (amid_words or word != "it")
        named = self.text[end : end + 1] == "_"  # a subscript follows
        return (word.islower() or word[1:].islower() or "-" in word or "'" in word) and not named

    def _prose_follows(self) -> bool:
        match = re.compile(r"[,;:] ([a-z]{2,}(?:-[a-z]+)*)\b(?![_^(⁰-₿])").match(self.text, self.at)
        return bool(match) and self._is_prose(match[1], True, match.end())

    # mathematics
    def _atom(self) -> str:
        """What stands at this place, with its accents, subscripts and exponents."""
        char = self.text[self.at]
        if char == "√":
            return self._root()
        if char in ("_", "^"):
            return self._script()
        if char in RAISED or char in LOWERED:
            return self._scripts()
        if char in "'′":
            self.at += 1
            return "'"
        if char == "*":
            self.at += 1
            return "^{*}" if self.at > 1 and not self.text[self.at - 2].isspace() else r"\ast "
        if char == "♯":
            self.at += 1
            return rf"\mathbin{{\sharp{self._scripts()}}}"
        base = self._base()
        if base in (r"\vert ", r"\Vert ") and self._opens():
            base = r"\mathopen{" + base.strip() + "}"
        return base + self._scripts()

    def _opens(self) -> bool:
        """Whether the bar that was just read opens: nothing, or a sign, stands before it."""
        before = self.text[: self.at - 1].rstrip()
        return not before or before[-1] in "=+−-(<>≤≥,[{/·"

    def _base(self) -> str:
        match = WORD.match(self.text, self.at)
        if match:
            for word in (match[0], re.match(r"[A-Za-z]+", match[0])[0]):  # type: ignore[index]
                if word in OPERATORS or word in NAMES:
                    self.at += len(word)
                    return self._operator(word) if word in OPERATORS else rf"\mathrm{{{_escaped(word)}}}"
        char = self.text[self.at]
        self.at += 1
        accents = []
        while self.at < len(self.text) and self.text[self.at] in ACCENTS:
            accents.append(ACCENTS[self.text[self.at]])
            self.at += 1
        if char == "Σ":
            base = r"\sum" if self._is_sum() else r"\Sigma "
        elif char == "Π" and self._is_sum():
            base = r"\prod"
        elif char in GREEK:
            base = rf"\{GREEK[char]} "
        elif char in SIGNS:
            base = SIGNS[char]
        elif char.isascii() and char.isalnum():
            base = char
        else:
            raise ValueError(f"no LaTeX is known for {char!r} (U+{ord(char):04X}) in {self.text!r}")
        for accent in accents:
            base = rf"\{accent}{{{base.strip()}}}"
        return base

    def _operator(self, word: str) -> str:
        if word in KNOWN:
            command = rf"\{word}"
        elif word in ("argmin", "argmax", "mean"):
            command = rf"\operatorname*{{{word[:3] + chr(92) + ',' + word[3:] if word.startswith('arg') else word}}}"
        else:
            command = rf"\operatorname{{{word}}}"
        scripts = self._scripts()
        return command + scripts + ("" if scripts else " ")

    def _is_sum(self) -> bool:
        """Whether Σ here is a sum: something to be added up stands after it, and what it runs over."""
        rest = self.text[self.at :]
        if rest.startswith("_x "):  # the covariance of x
            return False
        script = re.match(r"(?:_\{(?:[^{}]|\{[^{}]*\})*\}|_[A-Za-zα-ω]+|[₀-₉])?(?:\^\{[^{}]*\}|\^\w)?", rest)
        rest = rest[script.end() if script else 0 :]
        if not FOLLOWS_A_SUM.match(rest):
            return False
        word = re.match(r"\s+([a-z]{3,})\b", rest)
        return not word or word[1] in OPERATORS or word[1] in NAMES

    def _scripts(self) -> str:
        """Subscripts and exponents at this place, each kind gathered into one."""
        low, high = "", ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in LOWERED:
                low += LOWERED[char]
                self.at += 1
            elif char in RAISED:
                high += RAISED[char]
                self.at += 1
            elif char == "_" and not low:
                self.at += 1
                low += self._subscript()
            elif char == "^":
                self.at += 1
                high += self._exponent()
            elif char == "*" and self.at and not self.text[self.at - 1].isspace():
                high += "*"
                self.at += 1
            elif char in "'′":
                high += r"\prime "
                self.at += 1
            else:
                break
        return (f"_{{{low.strip()}}}" if low else "") + (f"^{{{high.strip()}}}" if high else "")

    def _script(self) -> str:
        return self._scripts() or self._base()

    def _subscript(self) -> str:
        if self.text[self.at] == "{":
            return self._group()
        match = re.compile(r"[a-z]{3,}(?:,[a-z])?|[a-z0-9]+(?:,[a-z0-9]\b)?").match(self.text, self.at)
        if match:
            self.at = match.end()
            word, comma, more = match[0].partition(",")
            long = len(word) > 2 and not set(word) <= set("ijklnap")
            return (rf"\mathrm{{{word}}}" if long else word) + comma + more
        if self.text[self.at] in "+·-−*":
            self.at += 1
            return SIGNS.get(self.text[self.at - 1], "*").strip()
        capital = {"Σ": r"\Sigma", "Π": r"\Pi"}.get(self.text[self.at])
        if capital:
            self.at += 1
            return capital
        base = self._base()
        if self.text[self.at : self.at + 1] == "'":
            self.at += 1
            base += "'"
        return base

    def _exponent(self) -> str:
        if self.text[self.at] == "{":
            return self._group()
        return self._base()

    def _group(self) -> str:
        self.at += 1
        inside = self.read("}")
        self.at += 1
        return inside

    def _root(self) -> str:
        self.at += 1
        if self.text[self.at] == "(":
            self.at += 1
            inside = self.read(")")
            self.at += 1
        else:
            number = re.compile(r"\d+").match(self.text, self.at)
            if number:
                self.at = number.end()
                inside = number[0]
            else:
                inside = self._base() + self._scripts()
        return rf"\sqrt{{{inside.strip()}}}"


def _escaped(word: str) -> str:
    return word.replace("_", r"\_")
