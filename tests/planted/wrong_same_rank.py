"""Nobody joins anything: every rank trains the whole problem alone."""

import torch
from pieces import dataset, net
from torch import nn
from torch.utils.data import DataLoader

model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for x, y in DataLoader(dataset(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
