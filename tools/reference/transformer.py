"""The forward pass of every family, from the formulas, in float64.

A Shape describes the computation of a family. Weights are a flat dictionary by role: "embed", "norm", "head", "0.q",
"0.q.bias", "1.router", "1.experts.7.gate". The pass runs one sequence, whose tokens may be in another order than that of
the text, and caches nothing. The engine must compute the same in batches, in chunks and from pages.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Experts:
    count: int
    top_k: int
    width: int
    score: str = "softmax"      # or "sigmoid"
    bias: str = ""              # the target of expert_bias: "choice", "weight" (then the choice too) or none
    renormalize: bool = False   # the chosen weights are divided by their sum
    scale: float = 1.0
    groups: int = 1             # equal runs of experts, of which groups_kept are eligible
    groups_kept: int = 1
    capacity: int = 0           # experts that the tokens of one block may use together; replaces the groups
    shared_width: int = 0       # an expert that every token uses


@dataclass(frozen=True)
class Shape:
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_dim: int
    theta: float
    ffn: int                    # of dense layers
    eps: float
    block: int = 0              # block-causal with blocks of this length from position 0; 0: every position sees all
    causal: bool = False        # a token sees itself and those before it in the sequence
    shift: int = 0              # 1: row i - 1 predicts position i
    tied: bool = False
    layer_norm: bool = False    # norms subtract the mean and have a bias
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    clip: float = 0.0           # queries, keys and values are clamped to [-clip, clip] before the rotation
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    experts: Experts | None = None
    dense: frozenset = frozenset()  # layers without experts in a model that has some

    def has_experts(self, layer):
        return self.experts is not None and layer not in self.dense


# ---------------------------------------------------------------------------------------------------------------------
# Roles: every weight a shape has, with its dimensions and kind

def roles(s):
    """role -> (dimensions, kind), kind one of "matrix", "norm", "bias", "expert_bias"."""
    out = {"embed": ((s.vocab, s.hidden), "matrix")}

    def linear(role, rows, cols, bias=False):
        out[role] = ((rows, cols), "matrix")
        if bias:
            out[role + ".bias"] = ((rows,), "bias")

    def norm(role, size):
        out[role] = ((size,), "norm")
        if s.layer_norm:
            out[role + ".bias"] = ((size,), "bias")

    def feed_forward(role, width, bias=False):
        linear(role + "gate", width, s.hidden, bias)
        linear(role + "up", width, s.hidden, bias)
        linear(role + "down", s.hidden, width, bias)

    for n in range(s.layers):
        norm(f"{n}.attn_norm", s.hidden)
        linear(f"{n}.q", s.heads * s.head_dim, s.hidden, s.qkv_bias)
        linear(f"{n}.k", s.kv_heads * s.head_dim, s.hidden, s.qkv_bias)
        linear(f"{n}.v", s.kv_heads * s.head_dim, s.hidden, s.qkv_bias)
        if s.qk_norm:
            out[f"{n}.q_norm"] = out[f"{n}.k_norm"] = ((s.head_dim,), "norm")
        linear(f"{n}.o", s.hidden, s.heads * s.head_dim, s.o_bias)
        norm(f"{n}.ffn_norm", s.hidden)
        if not s.has_experts(n):
            feed_forward(f"{n}.", s.ffn, s.mlp_bias)
            continue
        linear(f"{n}.router", s.experts.count, s.hidden)
        if s.experts.bias:
            out[f"{n}.expert_bias"] = ((s.experts.count,), "expert_bias")
        for e in range(s.experts.count):
            feed_forward(f"{n}.experts.{e}.", s.experts.width)
        if s.experts.shared_width:
            feed_forward(f"{n}.shared.", s.experts.shared_width)
    norm("norm", s.hidden)
    if not s.tied:
        linear("head", s.vocab, s.hidden)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Routing

@dataclass
class Choice:
    """The experts of each token, ascending, their weights, and the router's products."""
    logits: torch.Tensor    # [T, E]
    expert: torch.Tensor    # [T, k]
    weight: torch.Tensor    # [T, k]
    gap: float              # smallest difference between a kept and a dropped score, without ties
    ties: int               # how often one of two equal scores was kept


class Contest:
    """Chooses the largest scores, the first among equals, and records the smallest gap."""

    def __init__(self):
        self.gap, self.ties = float("inf"), 0

    def take(self, values, n):
        """Returns the indices of the n largest along the last dimension."""
        order = values.sort(descending=True, stable=True)
        if n < values.shape[-1]:
            gaps = order.values[..., n - 1] - order.values[..., n]
            self.ties += int((gaps == 0).sum())
            self.gap = min([self.gap, *gaps[gaps > 0].tolist()])
        return order.indices[..., :n]


def only(scores, keep):
    """Returns the scores at the indices `keep` [..., n], and minus infinity elsewhere."""
    return torch.full_like(scores, -torch.inf).scatter(-1, keep, scores.gather(-1, keep))


def limit_to_groups(scores, x, contest):
    """Keeps the best groups. The score of a group is the sum of its two largest scores."""
    groups = scores.unflatten(-1, (x.groups, -1))
    worth = groups.topk(min(2, groups.shape[-1]), -1).values.sum(-1)
    keep = contest.take(worth, x.groups_kept)
    lost = torch.ones_like(worth, dtype=torch.bool).scatter(-1, keep, False)
    return groups.masked_fill(lost[..., None], -torch.inf).flatten(-2)


def limit_to_pools(scores, x, block, contest):
    """The tokens of a block share a pool of experts: those with the largest score for any of the tokens."""
    parts = []
    for part in scores.split(block):
        pool = contest.take(part.amax(0), x.capacity)
        parts.append(only(part, pool.expand(len(part), -1)))
    return torch.cat(parts)


def choose_experts(logits, bias, x, block):
    contest = Contest()
    score = logits.softmax(-1) if x.score == "softmax" else logits.sigmoid()
    if x.bias == "weight":
        score = score + bias
    rank = score + bias if x.bias == "choice" else score
    if x.capacity:
        rank = limit_to_pools(rank, x, block, contest)
    elif x.groups > 1:
        rank = limit_to_groups(rank, x, contest)
    expert = contest.take(rank, x.top_k).sort(-1).values
    weight = score.gather(-1, expert)
    if x.renormalize:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    return Choice(logits, expert, weight * x.scale, contest.gap, contest.ties)


# ---------------------------------------------------------------------------------------------------------------------
# Layers

class Transformer:
    def __init__(self, shape, weights):
        self.shape, self.w = shape, {role: t.double() for role, t in weights.items()}

    def linear(self, role, x):
        return F.linear(x, self.w[role], self.w.get(role + ".bias"))

    def norm(self, role, x):
        if self.shape.layer_norm:
            x = x - x.mean(-1, keepdim=True)
        x = x * (x.square().mean(-1, keepdim=True) + self.shape.eps).rsqrt() * self.w[role]
        return x + self.w.get(role + ".bias", 0)

    def head_norm(self, role, x):
        """RMS norm over each head, independent of the type of the other norms."""
        return x * (x.square().mean(-1, keepdim=True) + self.shape.eps).rsqrt() * self.w[role]

    def rotate(self, x, positions):
        """Half-split: dimension i is rotated with dimension i + rope_dim / 2. x: [heads, T, head_dim]."""
        s, half = self.shape, self.shape.rope_dim // 2
        frequency = s.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(positions.double(), frequency)
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest), -1)

    def visible(self, n):
        block = torch.arange(n) // (1 if self.shape.causal else self.shape.block or n)
        return block[None, :] <= block[:, None]

    def attention(self, n, h, positions):
        s = self.shape
        q, k, v = (self.linear(f"{n}.{r}", h).unflatten(-1, (-1, s.head_dim)).transpose(0, 1) for r in "qkv")
        if s.qk_norm:
            q, k = self.head_norm(f"{n}.q_norm", q), self.head_norm(f"{n}.k_norm", k)
        if s.clip:
            q, k, v = (t.clamp(-s.clip, s.clip) for t in (q, k, v))
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        k, v = (t.repeat_interleave(s.heads // s.kv_heads, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / s.head_dim ** 0.5
        a = scores.masked_fill(~self.visible(len(h)), -torch.inf).softmax(-1) @ v
        return self.linear(f"{n}.o", a.transpose(0, 1).flatten(1))

    def feed_forward(self, role, h):
        return self.linear(role + "down", F.silu(self.linear(role + "gate", h)) * self.linear(role + "up", h))

    def mixture(self, n, h):
        x = self.shape.experts
        # Summed row by row, so that equal rows of the router have equal products.
        logits = (h[:, None, :] * self.w[f"{n}.router"]).sum(-1)
        choice = choose_experts(logits, self.w.get(f"{n}.expert_bias"), x, self.shape.block)
        y = torch.zeros_like(h)
        for e in range(x.count):
            token, k = (choice.expert == e).nonzero(as_tuple=True)
            y[token] += choice.weight[token, k, None] * self.feed_forward(f"{n}.experts.{e}.", h[token])
        if x.shared_width:
            y = y + self.feed_forward(f"{n}.shared.", h)
        return y, choice

    def __call__(self, ids, positions=None):
        """Returns (logits [T, vocab], {layer: Choice}) of one sequence of token ids, at positions 0, 1, … or at the given
        ones. Rows are not shifted."""
        s, choices = self.shape, {}
        positions = torch.arange(len(ids)) if positions is None else torch.as_tensor(positions)
        x = self.w["embed"][torch.as_tensor(ids)] * s.embed_scale
        for n in range(s.layers):
            x = x + self.attention(n, self.norm(f"{n}.attn_norm", x), positions)
            h = self.norm(f"{n}.ffn_norm", x)
            if s.has_experts(n):
                y, choices[n] = self.mixture(n, h)
            else:
                y = self.feed_forward(f"{n}.", h)
            x = x + y
        head = self.w["embed" if s.tied else "head"]
        return F.linear(self.norm("norm", x), head) * s.logit_scale, choices


def shifted(logits):
    """Shifts rows so that row i predicts position i, for models whose row i - 1 predicts it. Position 0 keeps its row."""
    return torch.cat((logits[:1], logits[:-1]))
