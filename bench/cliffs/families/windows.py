"""Windows over images, signals and volumes: convolutions, pools, resampling."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cliffs.family import Family, at, grid

IMAGES = at(
    "n h w",
    (1, 1, 1),
    (1, 7, 7),
    (1, 13, 17),
    (1, 14, 14),
    (1, 28, 28),
    (4, 15, 31),
    (1, 56, 56),
    (1, 113, 111),
    (1, 3, 1000),
    (1, 1000, 3),
    (32, 2, 2),  # many images of few places
)
FEW = (*IMAGES[1::2], IMAGES[-1])
PIXELS = at(
    "n h w",
    (1, 8, 8),
    (1, 14, 14),
    (1, 31, 33),
    (1, 64, 64),
    (2, 120, 67),
    (1, 5, 700),
    (1, 240, 320),
)


def _square(pad: int, stride: int) -> str:
    """As much padding on all sides, and as large a stride along both axes."""
    return f"pads=[{pad},{pad},{pad},{pad}], strides=[{stride},{stride}]"


def conv(
    name: str,
    inside: int,
    outside: int,
    window: int,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "float",
    many: bool = False,
    **more: object,
) -> Family:
    pad = dilation * (window - 1) // 2
    attributes = f"{_square(pad, stride)}, dilations=[{dilation},{dilation}], group={groups}"
    weights = f"{dtype}[{outside},{inside // groups},{window},{window}] w"
    return Family(
        f"Conv {name}",
        f"y = Conv <{attributes}> (x, w, b)",
        (f"{dtype}[n,{inside},h,w] x",),
        IMAGES if many else FEW,
        constants=(weights, f"{dtype}[{outside}] b"),
        spread=(-0.5, 0.5),
    )


def convolutions() -> Iterator[Family]:
    yield conv("3x3 64 to 64", 64, 64, 3, many=True)
    yield conv("1x1 64 to 64", 64, 64, 1, many=True)
    yield conv("1x1 256 to 64", 256, 64, 1)
    yield conv("1x1 stride 2", 64, 128, 1, 2)
    yield conv("3x3 stride 2", 64, 128, 3, 2)
    yield conv("3x3 3 to 32 stride 2", 3, 32, 3, 2, many=True)
    yield conv("7x7 3 to 64 stride 2", 3, 64, 7, 2)
    yield conv("3x3 128 to 32", 128, 32, 3)
    yield conv("5x5 32 to 32", 32, 32, 5)
    yield conv("3x3 16 dilated 2", 16, 16, 3, 1, 2)
    yield conv("3x3 16 dilated 8", 16, 16, 3, 1, 8)
    yield conv("3x3 1 to 8", 1, 8, 3)
    yield conv("3x3 8 to 1", 8, 1, 3)
    for groups in (2, 4, 16, 32):
        yield conv(f"3x3 64 in {groups} groups", 64, 64, 3, groups=groups)
    yield conv("1x1 96 in 4 groups", 96, 96, 1, groups=4)
    yield conv("depthwise 3x3", 64, 64, 3, groups=64, many=True)
    yield conv("depthwise 3x3 stride 2", 64, 64, 3, 2, groups=64)
    yield conv("depthwise 5x5", 96, 96, 5, groups=96)
    yield conv("depthwise 7x7", 96, 96, 7, groups=96)
    yield conv("depthwise 5x5 dilated 2", 32, 32, 5, 1, 2, groups=32)
    yield conv("3x3 float16", 32, 32, 3, dtype="float16")
    for groups in (1, 4, 32):
        channels = "c" if groups == 1 else "32"
        yield (
            Family(
                f"Conv free channels in {groups} groups",
                f"y = Conv <pads=[1,1,1,1], group={groups}> (x, w)",
                ("float[n,c,h,w] x",),
                tuple({**sizes, "c": 32} for sizes in FEW),
                constants=(f"float[32,{32 // groups},3,3] w",),
            )
            if channels
            else None
        )
    for image, sizes in (("n,512,h,w", at("n h w", (1, 1, 1))), ("1,512,1,1", ({},))):
        yield Family(
            f"Conv 3x3 stride 2 of float[{image}]",
            f"y = Conv <{_square(1, 2)}> (x, w)",
            (f"float[{image}] x",),
            sizes,
            constants=("float[512,512,3,3] w",),
        )
    yield Family(
        "Conv weights of a call",
        "y = Conv <pads=[1,1,1,1]> (x, w)",
        ("float[n,16,h,w] x", "float[16,16,3,3] w"),
        FEW,
    )
    lengths = at("n t", (1, 5), (1, 100), (4, 257), (1, 16000))
    yield Family(
        "Conv 1d 5",
        "y = Conv <pads=[2,2]> (x, w)",
        ("float[n,32,t] x",),
        lengths,
        constants=("float[32,32,5] w",),
    )
    yield Family(
        "Conv 1d 10 stride 5",
        "y = Conv <strides=[5], pads=[5,5]> (x, w)",
        ("float[n,1,t] x",),
        lengths,
        constants=("float[64,1,10] w",),
    )
    yield Family(
        "Conv 1d depthwise 31",
        "y = Conv <pads=[15,15], group=64> (x, w)",
        ("float[n,64,t] x",),
        lengths,
        constants=("float[64,1,31] w",),
    )
    yield Family(
        "Conv 3d",
        "y = Conv <pads=[1,1,1,1,1,1]> (x, w)",
        ("float[n,8,d,d,d] x",),
        at("n d", (1, 3), (1, 8), (1, 17)),
        constants=("float[16,8,3,3,3] w",),
    )
    for window, stride in ((2, 2), (3, 2), (4, 2), (3, 1), (5, 3)):
        yield Family(
            f"ConvTranspose {window}/{stride}",
            f"y = ConvTranspose <strides=[{stride},{stride}]> (x, w, b)",
            ("float[n,16,h,w] x",),
            FEW,
            constants=(f"float[16,16,{window},{window}] w", "float[16] b"),
        )


def quantised() -> Iterator[Family]:
    scale = "s := float {0.05} p := uint8 {3} z := int8 {0} "
    for name, inside, groups, window in (
        ("3x3 32", 32, 1, 3),
        ("1x1 64", 64, 1, 1),
        ("depthwise 3x3", 64, 64, 3),
        ("3x3 3", 3, 1, 3),
    ):
        pad = window // 2
        outside = 32 if groups == 1 else inside
        attributes = f"pads=[{pad},{pad},{pad},{pad}], group={groups}"
        yield Family(
            f"QLinearConv {name}",
            f"{scale} y = QLinearConv <{attributes}> (x, s, p, w, s, z, s, p)",
            (f"uint8[n,{inside},h,w] x",),
            FEW,
            constants=(f"int8[{outside},{inside // groups},{window},{window}] w",),
        )
    yield Family(
        "ConvInteger 3x3",
        f"{scale} y = ConvInteger <pads=[1,1,1,1]> (x, w, p)",
        ("uint8[n,16,h,w] x",),
        FEW,
        constants=("uint8[16,16,3,3] w",),
    )


def pools() -> Iterator[Family]:
    for kind, window, stride in (
        ("MaxPool", 2, 2),
        ("MaxPool", 3, 2),
        ("MaxPool", 3, 1),
        ("MaxPool", 5, 1),
        ("MaxPool", 9, 1),
        ("MaxPool", 13, 1),
        ("AveragePool", 2, 2),
        ("AveragePool", 3, 1),
        ("AveragePool", 5, 1),
        ("AveragePool", 9, 1),
        ("LpPool", 3, 1),
    ):
        pad = (window - 1) // 2
        attributes = f"kernel_shape=[{window},{window}], {_square(pad, stride)}"
        yield Family(
            f"{kind} {window}/{stride}",
            f"y = {kind} <{attributes}> (x)",
            ("float[n,32,h,w] x",),
            FEW,
        )
    yield Family(
        "MaxPool uint8 3/2",
        "y = MaxPool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (x)",
        ("uint8[n,32,h,w] x",),
        FEW,
    )
    yield Family(
        "MaxPool with indices",
        "y, i = MaxPool <kernel_shape=[2,2], strides=[2,2]> (x)",
        ("float[n,32,h,w] x",),
        FEW,
    )
    lengths = at("n t", (1, 7), (1, 1000), (4, 16000))
    yield Family(
        "MaxPool 1d 3/2",
        "y = MaxPool <kernel_shape=[3], strides=[2]> (x)",
        ("float[n,16,t] x",),
        lengths,
    )
    yield Family(
        "AveragePool 3d",
        "y = AveragePool <kernel_shape=[2,2,2], strides=[2,2,2]> (x)",
        ("float[n,8,d,d,d] x",),
        at("n d", (1, 5), (1, 20)),
    )
    for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Family(kind, f"y = {kind} (x)", ("float[n,64,h,w] x",), IMAGES)
    yield Family("LRN", "y = LRN <size=5> (x)", ("float[n,32,h,w] x",), FEW)


def resampling() -> Iterator[Family]:
    sizes = PIXELS
    for mode, coordinates in (
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("linear", "asymmetric"),
        ("nearest", "asymmetric"),
        ("nearest", "half_pixel"),
        ("cubic", "half_pixel"),
    ):
        for factor in (2.0, 1.5):
            scales = f"e := float[0] {{}} s := float[4] {{1, 1, {factor}, {factor}}}"
            attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}"'
            yield Family(
                f"Resize {mode} {coordinates} {factor}",
                f"{scales} y = Resize <{attributes}> (x, e, s)",
                ("float[n,16,h,w] x",),
                sizes,
            )
    free = (
        "e := float[0] {} o = Shape <end=2> (x) t = Shape <start=2> (l) "
        'r = Concat <axis=0> (o, t) y = Resize <mode="linear"> (x, e, e, r)'
    )
    pairs = at(
        "n h w u v",
        (1, 14, 14, 28, 28),
        (1, 31, 33, 64, 100),
        (1, 100, 100, 50, 50),
        (1, 240, 320, 224, 224),
    )
    yield Family("Resize linear to sizes", free, ("float[n,3,h,w] x", "bool[1,1,u,v] l"), pairs)
    yield Family(
        "Resize uint8",
        free.replace("linear", "nearest"),
        ("uint8[n,3,h,w] x", "bool[1,1,u,v] l"),
        pairs,
    )
    for mode in ("linear", "nearest", "cubic"):
        yield Family(
            f"GridSample {mode}",
            f'y = GridSample <mode="{mode}"> (x, g)',
            ("float[n,16,h,w] x", "float[n,h,w,2] g"),
            PIXELS,
            spread=(-0.95, 0.95),
        )
    yield Family(
        "GridSample aligned border",
        'y = GridSample <padding_mode="border", align_corners=1> (x, g)',
        ("float[n,16,h,w] x", "float[n,h,w,2] g"),
        PIXELS,
        spread=(-1.1, 1.1),
    )
    theta = "s := int64[4] {1,3,50,70} y = AffineGrid (t, s)"
    yield Family("AffineGrid", theta, ("float[1,2,3] t",), ({},), opset=20)
    yield Family(
        "DeformConv",
        "y = DeformConv <pads=[1,1,1,1]> (x, w, o)",
        ("float[n,8,h,w] x", "float[n,18,h,w] o"),
        FEW[:3],
        constants=("float[8,8,3,3] w",),
    )
    yield Family(
        "RoiAlign",
        "y = RoiAlign <output_height=7, output_width=7, sampling_ratio=2> (x, r, i)",
        ("float[1,32,h,h] x", "float[k,4] r", "int64[k] i"),
        grid(h=(20, 50), k=(1, 30)),
        below={"i": 1},
        spread=(0, 15),
    )
    yield Family(
        "Col2Im",
        "i := int64[2] {30,30} b := int64[2] {3,3} y = Col2Im <pads=[1,1,1,1]> (x, i, b)",
        ("float[n,144,900] x",),
        grid(n=(1, 4)),
    )


FAMILIES = (*convolutions(), *quantised(), *pools(), *resampling())
