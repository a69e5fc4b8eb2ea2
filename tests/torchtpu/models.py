"""Small models of the families that training tests use; random weights, made on the CPU."""

import torch
from torch import nn


def bert():
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForPreTraining(config)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


class _Block(nn.Module):
    """A residual block of ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, three stages, head: ResNet at a quarter of its width."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.stages = nn.Sequential(_Block(8, 8, 1), _Block(8, 16, 2), _Block(16, 32, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))

    def forward(self, x):
        return self.head(self.stages(self.stem(x)))


class UNet3d(nn.Module):
    """A 3-D U-Net of two levels: strided convolution down, trilinear or transposed up."""

    def __init__(self, classes=3):
        super().__init__()

        def block(inputs, outputs, stride=1):
            return nn.Sequential(
                nn.Conv3d(inputs, outputs, 3, stride, 1),
                nn.InstanceNorm3d(outputs, affine=True),
                nn.LeakyReLU(0.01, inplace=True),
            )

        self.enter = block(1, 4)
        self.down1 = block(4, 8, 2)
        self.down2 = nn.Sequential(nn.MaxPool3d(2), block(8, 16), nn.GroupNorm(4, 16))
        self.up1 = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="trilinear", align_corners=False), block(16, 8)
        )
        self.up2 = nn.ConvTranspose3d(16, 4, 2, 2)
        self.out = nn.Conv3d(8, classes, 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.down1(a)
        c = self.up1(self.down2(b))
        d = self.up2(torch.cat([b, c], 1))
        return self.out(torch.cat([a, d], 1))
