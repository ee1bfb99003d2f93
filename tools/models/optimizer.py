"""The optimizer: Muon for the matrices of the layers, AdamW for the rest, on one flat tensor.

All parameters become views of one tensor, matrices of one shape behind each other. So an update is a few dozen kernels
rather than a thousand, the average of the weights is one more, and several GPUs exchange their gradients at once.
"""
import torch
import torch.distributed as dist

MOMENTUM, WEIGHT_DECAY, BETAS = 0.95, 0.01, (0.9, 0.98)
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def is_matrix(name, p):
    return p.dim() == 2 and name.startswith("layers")


def orthogonal(x):
    """The matrices [N, rows, columns], each near its orthogonal factor: five Newton-Schulz steps in bf16."""
    a, b, c = NEWTON_SCHULZ
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT.bfloat16() if is_tall else x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Optimizer:
    """`flat` [parameters] holds the weights, `average` their exponential moving average."""

    def __init__(self, model, lr):
        named = dict(model.named_parameters())
        self.lr = lr
        self.order = sorted(named, key=lambda n: (not is_matrix(n, named[n]), tuple(named[n].shape)))
        self.params = [named[n] for n in self.order]
        self.sizes = [p.numel() for p in self.params]
        self.flat = torch.cat([p.detach().flatten() for p in self.params])
        for p, part in zip(self.params, self.flat.split(self.sizes)):
            p.data = part.view(p.shape)
        self.average, self.grad = self.flat.clone(), torch.zeros_like(self.flat)
        matrices = [p for n, p in zip(self.order, self.params) if is_matrix(n, p)]
        self.shapes = {}                            # shape -> number of matrices, in the order of `flat`
        for p in matrices:
            self.shapes[p.shape] = self.shapes.get(p.shape, 0) + 1
        self.inner = sum(p.numel() for p in matrices)
        self.momentum = torch.zeros_like(self.flat[:self.inner])
        self.rest = self.flat[self.inner:]
        self.rest.grad = self.grad[self.inner:]
        self.adam = torch.optim.AdamW([self.rest], lr=lr, betas=BETAS, weight_decay=0.0, fused=self.flat.is_cuda)

    def gather(self):
        """Takes the gradients from the parameters, and averages them over the ranks."""
        torch.cat([p.grad.flatten() for p in self.params], out=self.grad)
        for p in self.params:
            p.grad = None
        if dist.is_initialized():
            dist.all_reduce(self.grad)
            self.grad /= dist.get_world_size()

    def step(self, rate):
        lr = self.lr * rate
        self.muon(lr)
        self.adam.param_groups[0]["lr"] = lr
        self.adam.step()

    def muon(self, lr):
        """Nesterov momentum, made orthogonal, scaled to the size of an AdamW update."""
        grad = self.grad[:self.inner]
        self.momentum.lerp_(grad, 1 - MOMENTUM)
        update = grad.lerp(self.momentum, MOMENTUM)
        self.flat[:self.inner].mul_(1 - lr * WEIGHT_DECAY)
        at = 0
        for shape, count in self.shapes.items():
            part = slice(at, at + count * shape.numel())
            scale = 0.2 * max(shape) ** 0.5
            stack = orthogonal(update[part].view(count, *shape))
            self.flat[part].view(count, *shape).add_(stack, alpha=-lr * scale)
            at = part.stop

    def update_average(self, decay):
        self.average.lerp_(self.flat, 1 - decay)

    def averages(self):
        """{name: average of the parameter}"""
        return {n: part.view(p.shape) for n, p, part in zip(self.order, self.params, self.average.split(self.sizes))}

    def state(self):
        return dict(flat=self.flat, average=self.average, momentum=self.momentum, adam=self.adam.state_dict())

    def load(self, state):
        for name in ("flat", "average", "momentum"):
            getattr(self, name).copy_(state[name])
        self.adam.load_state_dict(state["adam"])
