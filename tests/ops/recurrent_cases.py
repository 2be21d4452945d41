"""Recurrent layers beside numpy: equations of the ONNX standard, one row and one iteration at a
time."""

from __future__ import annotations

import numpy as np

from tests.ops.case import sized

SIGMOID_TANH = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0))
LSTM_FUNCTIONS = (*SIGMOID_TANH, ("tanh", 0.0, 0.0))
HIDDEN, INPUT = 3, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer(iteration, states, x, lengths=None, reverse=False):
    """y and the last states; `iteration(x_t, states of one row)` gives the next states."""
    time, rows, _ = x.shape
    y = np.zeros((time, rows, HIDDEN))
    last = [state.copy() for state in states]
    for row in range(rows):
        end = time if lengths is None else min(time, int(lengths[row]))
        for t in range(end - 1, -1, -1) if reverse else range(end):
            new = iteration(x[t, row], [state[row] for state in last])
            for state, value in zip(last, new):
                state[row] = value
            y[t, row] = new[0]
    return (y, *last)


def rnn(x, w, r, bias, n, m):
    def iteration(x_t, states):
        (h,) = states
        return [np.tanh(w[0] @ x_t + r[0] @ h + bias[0, :3] + bias[0, 3:])]

    return layer(iteration, [np.zeros((m, HIDDEN))], x, reverse=True)


def clipped_rnn(x, w, r, lengths, first_h, n, m):
    def iteration(x_t, states):
        z = np.clip(w[1] @ x_t + r[1] @ states[0], -0.7, 0.7)
        return [np.where(z < 0, 0.25 * z, z)]

    return layer(iteration, [first_h[1]], x, lengths)


def gru(linear):
    def reference(x, w, r, bias, lengths, n, m):
        wz, wr, wh = np.split(w[0], 3)
        rz, rr, rh = np.split(r[0], 3)
        own, past = np.split(bias[0].reshape(6, HIDDEN), 2)

        def iteration(x_t, states):
            (h,) = states
            z = sigmoid(wz @ x_t + rz @ h + own[0] + past[0])
            reset = sigmoid(wr @ x_t + rr @ h + own[1] + past[1])
            if linear:
                hidden = np.tanh(wh @ x_t + reset * (rh @ h + past[2]) + own[2])
            else:
                hidden = np.tanh(wh @ x_t + rh @ (reset * h) + past[2] + own[2])
            return [(1 - z) * hidden + z * h]

        return layer(iteration, [np.zeros((m, HIDDEN))], x, lengths)

    return reference


def lstm_iteration(w, r, bias, peepholes):
    def iteration(x_t, states):
        h, c = states
        z = (w @ x_t + r @ h + bias).reshape(4, HIDDEN)
        enter = sigmoid(z[0] + peepholes[0] * c)
        keep = sigmoid(z[2] + peepholes[2] * c)
        new = keep * c + enter * np.tanh(z[3])
        leave = sigmoid(z[1] + peepholes[1] * new)
        return [leave * np.tanh(new), new]

    return iteration


def lstm(x, w, r, n, m):
    iteration = lstm_iteration(w[0], r[0], 0, np.zeros((3, 1)))
    return layer(iteration, [np.zeros((m, HIDDEN))] * 2, x)


def full_lstm(x, w, r, bias, lengths, first_h, first_c, peepholes, n, m):
    both = bias[1, : 4 * HIDDEN] + bias[1, 4 * HIDDEN :]
    iteration = lstm_iteration(w[1], r[1], both, peepholes[1].reshape(3, HIDDEN))
    states = [first_h[:, 1], first_c[:, 1]]
    return layer(iteration, states, np.swapaxes(x, 0, 1), lengths, reverse=True)


def weights(gates: int, directions: int = 1) -> tuple[str, str]:
    rows = gates * HIDDEN
    return f"float32[{directions}, {rows}, {INPUT}]", f"float32[{directions}, {rows}, {HIDDEN}]"


CASES = {
    "rnn": [
        sized("float32[n, m, 2]", *weights(1), "float32[1, 6]", given=("bias",), reverse=True,
              activations=(("tanh", 0.0, 0.0),), to=rnn),
        sized("float32[n, m, 2]", *weights(1, 2), "int32[m]", "float32[2, m, 3]", direction=1,
              given=("lengths", "first_h"), activations=(("leakyrelu", 0.25, 0.0),), clip=0.7,
              to=clipped_rnn),
    ],
    "gru": [
        sized("float32[n, m, 2]", *weights(3), "float32[1, 18]", "int32[m]",
              given=("bias", "lengths"), activations=SIGMOID_TANH, to=gru(False)),
        sized("float32[n, m, 2]", *weights(3), "float32[1, 18]", "int32[m]",
              given=("bias", "lengths"), activations=SIGMOID_TANH, linear_before_reset=True,
              to=gru(True)),
    ],
    "lstm": [
        sized("float32[n, m, 2]", *weights(4), activations=LSTM_FUNCTIONS, to=lstm),
        sized("float32[m, n, 2]", *weights(4, 2), "float32[2, 24]", "int32[m]",
              "float32[m, 2, 3]", "float32[m, 2, 3]", "float32[2, 9]", direction=1, reverse=True,
              given=("bias", "lengths", "first_h", "first_c", "peepholes"), batch_first=True,
              activations=LSTM_FUNCTIONS, to=full_lstm),
    ],
}  # fmt: skip
