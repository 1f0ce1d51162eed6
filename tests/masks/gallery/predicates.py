"""What each entry of the gallery means, one cell at a time: written from the papers' definitions, without intervals.

``MEANING[name](i, j, **params)`` says whether query ``i`` sees key ``j``. Positions lie inside the mask's plane.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod


def piece(at: int, sizes: list[int]) -> int | None:
    """The number of the piece in which a position lies; None behind the last."""
    return next((n for n, stop in enumerate(accumulate(sizes)) if at < stop), None)


def start_of(number: int, sizes: list[int]) -> int:
    return sum(sizes[:number])


# A single sequence, packed sequences, images in text ------------------------------------------------------------------


def sink_window(i, j, sinks, window):
    return j <= i and (j < sinks or i - j < window)


def same_document(i, j, lengths):
    return piece(i, lengths) is not None and piece(i, lengths) == piece(j, lengths)


def documents_prefix(i, j, parts):
    lengths = [length for _, length in parts]
    if not same_document(i, j, lengths):
        return False
    document = piece(i, lengths)
    return j - start_of(document, lengths) < parts[document][0] or j <= i


def causal_blockwise(i, j, lengths):
    inside = piece(i, lengths) is not None
    return inside and j <= i and (same_document(i, j, lengths) or piece(i, lengths) == len(lengths) - 1)


def shared_prompt(i, j, prompt, answers):
    return j <= i and (j < prompt or same_document(i, j, [prompt, *answers]))


def shared_prompts(i, j, groups):
    sizes = [sum(group) for group in groups]
    if not same_document(i, j, sizes):
        return False
    number = piece(i, sizes)
    offset, (prompt, *answers) = start_of(number, sizes), groups[number]
    return shared_prompt(i - offset, j - offset, prompt, answers)


def image_in_text(i, j, images):
    return j <= i or any(start <= i < stop and start <= j < stop for start, stop in images)


def flamingo(i, j, text, places, image):
    passed = [place for place in places if place <= i]
    return bool(passed) and j // image == len(passed) - 1


# Sparse ---------------------------------------------------------------------------------------------------------------


def longformer(i, j, reach, tokens):
    return abs(i - j) <= reach or any(start <= at < stop for at in (i, j) for start, stop in tokens)


def dilated_window(i, j, window, dilation):
    return any(j == i - step * dilation for step in range(window))


def sparse_strided(i, j, length, stride):
    return j <= i and (j >= i - stride or (i - j) % stride == 0)


def sparse_fixed(i, j, length, stride, summary):
    return j <= i and (i // stride == j // stride or j % stride >= stride - summary)


def qk_sparse(i, j, spans):
    return j <= i and not any(start <= i < stop and start <= j < stop for start, stop in spans)


# Images ---------------------------------------------------------------------------------------------------------------


def clear(i, j, text, height, width, radius):
    if i < text or j < text:
        return True
    (y, x), (v, u) = divmod(i - text, width), divmod(j - text, width)
    return (y - v) ** 2 + (x - u) ** 2 < radius**2


def clear_pooled(i, j, text, height, width, radius, factor):
    if j >= text + height * width:
        return i >= text
    return clear(i, j, text, height, width, radius)


def swin(i, j, height, width, window):
    (y, x), (v, u) = divmod(i, width), divmod(j, width)
    return (y // window, x // window) == (v // window, u // window)


def swin_shifted(i, j, height, width, window, shift):
    """Swin's own way where windows divide the image: roll, cut into windows, keep the image's three bands apart."""
    (y, x), (v, u) = divmod(i, width), divmod(j, width)
    if height % window or width % window:
        return ((y - shift) // window, (x - shift) // window) == ((v - shift) // window, (u - shift) // window)

    def place(at, side):
        rolled = (at - shift) % side
        band = 0 if rolled < side - window else 1 if rolled < side - shift else 2
        return rolled // window, band

    return (place(y, height), place(x, width)) == (place(v, height), place(u, width))


def axial(i, j, height, width, axis):
    (y, x), (v, u) = divmod(i, width), divmod(j, width)
    return (axis != "column" and y == v) or (axis != "row" and x == u)


# Neighbourhoods -------------------------------------------------------------------------------------------------------


def natten_axis(query, key, length, kernel, dilation, stride, causal):
    """One axis of NATTEN: everything happens among the positions of equal remainder modulo the dilation."""
    if query % dilation != key % dilation:
        return False
    members = len(range(query % dilation, length, dilation))
    query, key = query // dilation, key // dilation
    group = query // stride * stride
    if causal:
        leader = min(group + stride - 1, members - 1)
        return leader - kernel < key <= query
    leader = min(group + stride // 2, members - 1)
    left, right = kernel // 2, (kernel - 1) // 2
    centre = min(max(leader, left), members - 1 - right)
    return centre - left <= key <= centre + right


def natten(i, j, shape, kernel, dilation, stride, causal):
    def each(values):
        return values * len(shape) if len(values) == 1 else values

    settings = zip(shape, each(kernel), each(dilation), each(stride), each(causal), strict=True)
    axes = list(zip(coordinates(i, shape), coordinates(j, shape), strict=True))
    return all(natten_axis(q, k, *setting) for (q, k), setting in zip(axes, settings, strict=True))


def natten_1d(i, j, length, kernel, dilation, stride, causal):
    return natten_axis(i, j, length, kernel, dilation, stride, causal)


def coordinates(at, shape):
    return [at // prod(shape[axis + 1 :]) % side for axis, side in enumerate(shape)]


# Video ----------------------------------------------------------------------------------------------------------------


def sliding_tiles(i, j, shape, tile, window, text, order):
    tokens = prod(shape)
    if i >= tokens or j >= tokens:
        return True
    counts = [side // size for side, size in zip(shape, tile, strict=True)]
    if order == "tiles":
        mine, theirs = (coordinates(at // prod(tile), counts) for at in (i, j))
    else:
        mine, theirs = ([c // t for c, t in zip(coordinates(at, shape), tile, strict=True)] for at in (i, j))

    def near(a, b, count, size):
        size = min(size, count)
        first = min(max(a - size // 2, 0), count - size)
        return first <= b < first + size

    return all(near(*axis) for axis in zip(mine, theirs, counts, window, strict=True))


def svg_spatial(i, j, frames, frame, reach, text):
    video = frames * frame
    return i >= video or j >= video or j < frame or abs(i // frame - j // frame) <= reach


def svg_temporal(i, j, frames, frame, reach, text):
    video = frames * frame
    return i >= video or j >= video or j < frame or abs(i % frame - j % frame) <= reach


def block_causal_video(i, j, frames, frame, chunk):
    return j // frame // chunk <= i // frame // chunk


# Recommenders ---------------------------------------------------------------------------------------------------------


def hstu(i, j, length, contextual, targets, window, full_tail, target_group_size):
    history = length - targets
    if i == j:
        return True
    if i < contextual:
        return j < history
    if i >= history and j >= history:
        return j <= i and (i - history) // target_group_size == (j - history) // target_group_size
    most = history - max(contextual - 1, 0)
    position = min(max(i - max(contextual - 1, 0), 0), most)
    low = 0
    if window and position > window and not (full_tail and position >= most - full_tail):
        low = position - window + max(contextual - 1, 0)
    return low <= j < min(i + 1, history)


def hstu_distances(i, j, length, contextual, targets, window, full_tail):
    """Meta's reference, by distances of positions in which context and targets each stand in one place."""
    last = length - targets - max(contextual - 1, 0)

    def position(at):
        return min(max(at - max(contextual - 1, 0), 0), last)

    apart = position(i) - position(j)
    seen = i == j or apart > 0
    if window:
        seen = seen and (apart <= window or (full_tail > 0 and position(i) >= last - full_tail))
    return seen or (contextual > 0 and position(i) == 0 and position(j) < last)


def hstu_packed(i, j, lengths, contextual, targets, window, full_tail, target_group_size):
    if not same_document(i, j, lengths):
        return False
    user = piece(i, lengths)
    offset, own = start_of(user, lengths), (targets * len(lengths) if len(targets) == 1 else targets)[user]
    return hstu(i - offset, j - offset, lengths[user], contextual, own, window, full_tail, target_group_size)


# Training and decoding ------------------------------------------------------------------------------------------------


def eagle3_training(i, j, length, steps, valid):
    real = valid or length
    padded = i >= real or j % length >= real
    return not padded and (j <= i if j < length else (j - i) % length == 0)


def dflash_training(i, j, context, anchors, draft):
    return j < anchors[i // draft] if j < context else (j - context) // draft == i // draft


def jetspec_training(i, j, context, drafts, draft):
    return j < context or ((j - context) // draft == i // draft and (j - context) % draft <= i % draft)


def block_diffusion(i, j, length, block, order):
    clean_i, clean_j = ((at >= length) == (order == "noisy first") for at in (i, j))
    mine, theirs = i % length // block, j % length // block
    if clean_i:
        return clean_j and theirs <= mine
    return theirs < mine if clean_j else theirs == mine


def multi_token(i, j, length, ahead, every):
    if i < length:
        return j <= i
    group, step = divmod(i - length, ahead)
    if j < length:
        return j <= group * every
    return (j - length) // ahead == group and (j - length) % ahead <= step


def context_parallel(i, j, length, ranks, rank, layout, window):
    """The rank's own tokens are found by dealing every token out in turn."""
    pieces = 2 * ranks if layout == "zigzag" else ranks
    long, size = length % pieces, length // pieces
    bounds = [0, *accumulate(size + (n < long) for n in range(pieces))]

    def owner(at):
        if layout == "striped":
            return at % ranks
        number = next(n for n in range(pieces) if bounds[n] <= at < bounds[n + 1])
        return min(number, pieces - 1 - number) if layout == "zigzag" else number

    position = [at for at in range(length) if owner(at) == rank][i]
    return j <= position and (not window or position - j < window)


def offset_causal(i, j, cached, new, window):
    return j <= cached + i and (not window or cached + i - j < window)


def continuous_batching(i, j, cached, new):
    keys = [before + tokens for before, tokens in zip(cached, new, strict=True)]
    sequence = piece(i, new)
    if piece(j, keys) != sequence:
        return False
    return j - start_of(sequence, keys) <= cached[sequence] + i - start_of(sequence, new)


def tree_attention(i, j, context, parents):
    if j < context:
        return j <= i
    node, wanted = i - context, j - context
    while node >= 0:
        if node == wanted:
            return True
        node = parents[node]
    return False


def medusa_tree(i, j, context, branching):
    """Nodes as paths of choices: a node sees the prefixes of its own path."""
    paths = [()]
    level = [()]
    for children in branching:
        level = [(*path, child) for path in level for child in range(children)]
        paths += level
    if j < context:
        return j <= i
    if i < context:
        return False
    mine, theirs = paths[i - context + 1], paths[j - context + 1]
    return mine[: len(theirs)] == theirs


MEANING = {
    "full": lambda i, j: True,
    "causal": lambda i, j: j <= i,
    "sliding_window": lambda i, j, window: i - window < j <= i,
    "bidirectional_window": lambda i, j, left, right: i - left <= j <= i + right,
    "sink_window": sink_window,
    "prefix_lm": lambda i, j, prefix: j < prefix or j <= i,
    "chunked_causal": lambda i, j, length, chunk: j <= i and i // chunk == j // chunk,
    "documents_full": same_document,
    "documents_causal": lambda i, j, lengths: j <= i and same_document(i, j, lengths),
    "documents_prefix": documents_prefix,
    "causal_blockwise": causal_blockwise,
    "shared_prompt": shared_prompt,
    "shared_prompts": shared_prompts,
    "image_in_text": image_in_text,
    "image_prefix": lambda i, j, image, prompt: j < image + prompt or j <= i,
    "flamingo": flamingo,
    "longformer": longformer,
    "dilated_window": dilated_window,
    "sparse_strided": sparse_strided,
    "sparse_fixed": sparse_fixed,
    "qk_sparse": qk_sparse,
    "clear": clear,
    "clear_pooled": clear_pooled,
    "swin": swin,
    "swin_shifted": swin_shifted,
    "axial": axial,
    "natten_1d": natten_1d,
    "natten_2d": natten,
    "natten_3d": natten,
    "sta_2d": sliding_tiles,
    "sta_3d": sliding_tiles,
    "svg_spatial": svg_spatial,
    "svg_temporal": svg_temporal,
    "block_causal_video": block_causal_video,
    "hstu": hstu,
    "hstu_packed": hstu_packed,
    "eagle3_training": eagle3_training,
    "dflash_training": dflash_training,
    "jetspec_training": jetspec_training,
    "block_diffusion": block_diffusion,
    "multi_token": multi_token,
    "context_parallel": context_parallel,
    "decode": offset_causal,
    "chunked_prefill": lambda i, j, cached, chunk, window: offset_causal(i, j, cached, chunk, window),
    "continuous_batching": continuous_batching,
    "tree_attention": tree_attention,
    "medusa_tree": medusa_tree,
}
