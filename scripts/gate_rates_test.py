#!/usr/bin/env python3
"""Tests of gate-rates: the test by hand, and that alarms and finds are counted as they are made."""
import importlib.machinery
import importlib.util
import os
import random
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
loader = importlib.machinery.SourceFileLoader("gate_rates", os.path.join(HERE, "gate-rates"))
gate_rates = importlib.util.module_from_spec(importlib.util.spec_from_loader("gate_rates", loader))
loader.exec_module(gate_rates)


class Rates(unittest.TestCase):
    def test_signed_ranks_by_hand(self):
        # Of six that rose none other is as far: 2 of 64.
        self.assertEqual(gate_rates.signed_ranks([1, 2, 3, 4, 5, 6]), 2 / 64)
        self.assertEqual(gate_rates.signed_ranks([-1, 2, 3, 4, 5, 6]), 4 / 64)
        self.assertEqual(gate_rates.signed_ranks([0, 0, 0]), 1)

    def test_order_within_a_pair_is_kept(self):
        lines = ["b figure 7", "a figure 5", "a figure 6", "b figure 8"]
        self.assertEqual(gate_rates.read(lines), [(5, 7, False), (6, 8, True)])

    def test_noise_alone_gives_few_alarms_and_a_loss_is_found(self):
        rng = random.Random(3)
        pairs = [(rng.gauss(100, 2), rng.gauss(100, 2), rng.random() < 0.5) for _ in range(400)]
        found = gate_rates.rates(pairs, 1)
        for drift in (0, gate_rates.DRIFT):
            self.assertLessEqual(found[drift, 0], 20)
            self.assertGreaterEqual(found[drift, gate_rates.LOSS], 160)


if __name__ == "__main__":
    unittest.main()
