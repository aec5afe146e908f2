"""A robot at 50 Hz whose policy is behind a socket. Half-way its connection breaks; it stops, comes back and goes on.

Run: python examples/control_loop.py [ADDRESS] [SECONDS], while `hilp serve` of examples/robot_log.py's policy runs
"""

import sys
import time

import numpy as np
from websockets.exceptions import WebSocketException

from hilp.serve.client import Client  # WebsocketClientPolicy of openpi-client has the same calls

address = sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:8000"
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
PERIOD = 0.02
ticks = round(seconds / PERIOD)

cart, to_play, waited = np.array([-2.0, -2.0]), [], []
robot, connected, stopped, late = None, 0, 0, 0
begin = time.perf_counter()
for tick in range(ticks):
    push = np.zeros(2)  # what is safe without an answer: the cart stands still
    asked = time.perf_counter()
    try:
        if robot is None:
            robot, to_play, connected = Client(address, timeout=1.0), [], connected + 1
        if not to_play:  # all actions of an answer are played before the next question
            to_play = list(robot.infer({"observation/state": cart})["actions"])
            waited.append(time.perf_counter() - asked)
        push = to_play.pop(0)
    except (OSError, WebSocketException):
        robot, stopped = None, stopped + 1  # the next tick tries again
    cart = np.clip(cart + 0.02 * push, -4, 4)  # the robot: a cart that is pushed about, commands in newtons
    if tick == ticks // 2 and robot is not None:
        robot.close()  # as if somebody had pulled out the cable
    left = begin + (tick + 1) * PERIOD - time.perf_counter()
    late += left < 0
    time.sleep(max(0.0, left))

middle, worst = 1e3 * np.percentile(waited, [50, 99]) if waited else (np.nan, np.nan)
print(f"{ticks} ticks: {late} late, {stopped} without an answer, connected {connected} times")
print(f"an answer took {middle:.1f} ms (p50), {worst:.1f} ms (p99); the cart is at ({cart[0]:.1f}, {cart[1]:.1f})")
