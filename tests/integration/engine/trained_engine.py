"""Engines over the trained model that ships, with its MTP head, in float32."""

import torch
from ninfer_spec_mtp.decoder import MtpDecoder

from ninfer.models.loader import load_model, load_mtp_head
from ninfer.models.resolve import resolve_model
from ninfer.text.tokenizer import Tokenizer
from tests.fakes.harness import Harness
from tests.integration.engine.real_device import RealDevice


class TrainedModel:
    """`tiny-hybrid` and its head."""

    def __init__(self):
        source = resolve_model("tiny-hybrid")
        self.model = load_model(source, dtype=torch.float32)
        self.head = load_mtp_head(source, self.model)
        self.tokenizer = Tokenizer.from_path(source.path)
        self.vocab_size = self.tokenizer.vocab_size

    def encode(self, text):
        return self.tokenizer.encode(text, add_special=False)

    def open(self, *, num_lanes, num_pages, draft_tokens, num_slots=8, tiers=()):
        """A harness; the head works for one at a time."""
        device = RealDevice(
            self.model,
            num_pages=num_pages,
            num_lanes=num_lanes,
            num_slots=num_slots,
            num_scratch=draft_tokens,
            head=self.head,
            vocab_size=self.vocab_size,
        )
        decoder = MtpDecoder(self.head, max_tokens=draft_tokens)
        device.runner.follow = decoder.follow
        return Harness(
            device=device,
            num_lanes=num_lanes,
            draft_tokens=draft_tokens,
            decoder=decoder,
            tiers=tiers,
            chunk=4096,
            shared_chunk=4096,
            checks=False,
        )
