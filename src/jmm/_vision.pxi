# Pictures through the vision tower, several in one forward.

# More patches do not share a forward; a larger picture has one of its own.
cdef size_t N_PATCHES_SHARED = 4096

# Each shape adds up to four sizes of windows, and so nodes to every layer of the graph, which has
# a fixed number of them.
cdef size_t N_SHAPES_SHARED = 4


# libmtmd asserts that a side has at most so many pixels.
cdef int MAX_SIDE = 46_000


cdef struct Picture:
    uint32_t grid_h  # of a tile: pixels
    uint32_t grid_w
    const float *patches  # borrowed, NULL for a tile and once encoded elsewhere
    const float *pixels  # borrowed, of a tile, else NULL
    float *rows  # borrowed: where the tower's output goes, or what it was


cdef size_t _n_patches(const Picture &picture) noexcept nogil:
    return <size_t>picture.grid_h * picture.grid_w


cdef bool _is_larger(const Picture &one, const Picture &other) noexcept nogil:
    if _n_patches(one) != _n_patches(other):
        return _n_patches(one) > _n_patches(other)
    return one.grid_h > other.grid_h


cdef size_t _next_group(const vector[Picture] &pictures, size_t first,
                        vector[mtmd.mtmd_patches] &group) noexcept nogil:
    """Fills the group that shares a forward with a picture; returns where the next one begins."""
    cdef mtmd.mtmd_patches patches
    cdef size_t n_patches = 0, n_shapes = 0, i = first
    group.clear()
    while i < pictures.size():
        if i == first or pictures[i].grid_h != patches.ny or pictures[i].grid_w != patches.nx:
            n_shapes += 1
        n_patches += _n_patches(pictures[i])
        if i > first and (n_patches > N_PATCHES_SHARED or n_shapes > N_SHAPES_SHARED):
            break
        patches.nx, patches.ny = pictures[i].grid_w, pictures[i].grid_h
        patches.data = pictures[i].patches
        group.push_back(patches)
        i += 1
    return i


cdef int _encode_pictures(mtmd.mtmd_context *vision, vector[Picture] pictures) except -1 nogil:
    """Fills `rows` of every picture."""
    cdef vector[mtmd.mtmd_patches] group
    cdef size_t stop, n_values
    cdef size_t first = 0
    cdef size_t n_embd, n_merged
    cdef const float *rows
    if pictures.empty():
        return 0
    if pictures[0].pixels != NULL:
        return _encode_tiles(vision, pictures)
    n_embd = mtmd.mtmd_get_n_embd(vision)
    n_merged = mtmd.mtmd_get_patch_n_merge(vision) * mtmd.mtmd_get_patch_n_merge(vision)
    stable_sort(pictures.begin(), pictures.end(), _is_larger)  # equal sizes are one batch
    while first < pictures.size():
        stop = _next_group(pictures, first, group)
        if mtmd.mtmd_encode_patches(vision, group.data(), group.size()) != 0:
            with gil:
                raise _failure(DecodeError, "the vision tower failed")
        rows = mtmd.mtmd_get_output_embd(vision)
        while first < stop:
            n_values = _n_patches(pictures[first]) // n_merged * n_embd
            memcpy(pictures[first].rows, rows, n_values * sizeof(float))
            rows += n_values
            first += 1
    return 0


cdef int _encode_tiles(mtmd.mtmd_context *vision, const vector[Picture] &tiles) except -1 nogil:
    """Fills `rows` of every tile."""
    cdef size_t i, n_values
    for i in range(tiles.size()):
        if mtmd.mtmd_encode_pixels(vision, tiles[i].grid_w, tiles[i].grid_h, tiles[i].pixels) != 0:
            with gil:
                raise _failure(DecodeError, "the vision tower failed")
        n_values = mtmd.mtmd_get_n_tokens_pixels(vision, tiles[i].grid_w, tiles[i].grid_h)
        n_values *= mtmd.mtmd_get_n_embd(vision)
        memcpy(tiles[i].rows, mtmd.mtmd_get_output_embd(vision), n_values * sizeof(float))
    return 0


cdef _check_takes_patches(Handles handles):
    if handles.patch_n_elem == 0:
        raise InputError(
            "the vision tower takes no patches or vision tokens: those are of Qwen's families; "
            "pass the picture itself"
        )


cdef _check_grid(Handles handles, grid_h, grid_w):
    merge = handles.patch_n_merge
    most = MAX_SIDE // handles.patch_size // merge * merge
    if not (0 < grid_h <= most and 0 < grid_w <= most) or grid_h % merge or grid_w % merge:
        raise InputError(
            f"the grid is {grid_h} x {grid_w} patches; both must be multiples of {merge} "
            f"from {merge} to {most}"
        )


cdef _check_patches(Handles handles, n_rows, n_columns, grid_h, grid_w):
    if n_columns != handles.patch_n_elem:
        raise InputError(f"patches have {n_columns} columns; the model takes {handles.patch_n_elem}")
    _check_grid(handles, grid_h, grid_w)
    if n_rows != grid_h * grid_w:
        raise InputError(
            f"there are {n_rows} patches for a grid of {grid_h} x {grid_w} = {grid_h * grid_w}"
        )


cdef _encode_tiles_apart(Handles handles, list tiles):
    """`Engine.encode_vision` of a tower that takes tiles."""
    cdef vector[Picture] items
    cdef Picture item
    cdef const float[:, :, ::1] pixels
    cdef float[:, ::1] rows
    memset(&item, 0, sizeof(item))
    keep, outputs = [], []
    try:
        for values, height, width in tiles:
            pixels = values
            if pixels.shape[0] != height or pixels.shape[1] != width or pixels.shape[2] != 3:
                raise InputError(
                    f"a tile is [{pixels.shape[0]}, {pixels.shape[1]}, {pixels.shape[2]}]; "
                    f"[{height}, {width}, 3] is needed"
                )
            n_rows = mtmd.mtmd_get_n_tokens_pixels(handles.vision, width, height)
            outputs.append(np.empty((n_rows, handles.n_embd_vision), np.float32))
            rows = outputs[-1]
            keep.append(pixels)
            item.grid_h, item.grid_w = height, width
            item.pixels, item.rows = &pixels[0, 0, 0], &rows[0, 0]
            items.push_back(item)
        _check_room(handles.available, _tower_more(handles, items), f"a call with {len(tiles)} tiles")
        with nogil:
            _encode_pictures(handles.vision, items)
        handles._raise_interrupt()
        handles.held = handles.wanted
    except BaseException as error:
        raise handles._translate(error, f"{len(tiles)} tiles") from None
    return outputs


cdef _encode_vision(Handles handles, list pictures):
    """`Tower.encode_vision`, between `_enter_open` and `_leave`."""
    cdef vector[Picture] items
    cdef Picture item
    cdef const float[:, ::1] patches
    cdef float[:, ::1] rows
    cdef size_t n_merged = handles.patch_n_merge ** 2
    cdef size_t n_patches = 0
    _check_takes_patches(handles)
    item.pixels = NULL
    keep, outputs = [], []
    try:
        for values, grid_h, grid_w in pictures:
            patches = values
            _check_patches(handles, patches.shape[0], patches.shape[1], grid_h, grid_w)
            outputs.append(np.empty((len(values) // n_merged, handles.n_embd_vision), np.float32))
            rows = outputs[-1]
            keep.append(patches)
            item.grid_h, item.grid_w = grid_h, grid_w
            item.patches, item.rows = &patches[0, 0], &rows[0, 0]
            items.push_back(item)
            n_patches += patches.shape[0]
        what = f"a call with {n_patches} patches"
        _check_room(handles.available, _tower_more(handles, items), what)
        with nogil:
            _encode_pictures(handles.vision, items)
        handles._raise_interrupt()
        handles.held = handles.wanted
    except BaseException as error:
        raise handles._translate(error, f"pictures of {n_patches} patches") from None
    return outputs


cdef class Tower(Handles):
    """A vision tower alone, without a language model.

    Args:
        mmproj_path: GGUF of the tower.
        n_threads: Threads of its pool.
        device: As of `Engine`.
        available: As of `Engine`.

    Raises:
        ModelLoadError: The file cannot be loaded.
        OutOfMemoryError: It does not fit in memory.
    """

    def __init__(self, mmproj_path, *, int n_threads, device=None, available=None):
        self._register()
        self.available = available
        self._enter()
        try:
            self._start(n_threads, device)
            self._load_vision(mmproj_path, NULL, True)
            self.loaded.store(True)
        except BaseException as error:
            raise self._load_error(error, mmproj_path) from None
        finally:
            self._leave()

    def encode_vision(self, list pictures):
        """Runs the tower, on several pictures at once.

        Args:
            pictures: ``(patches, grid_h, grid_w)`` each, where ``patches`` is float32
                ``[grid_h * grid_w, patch_n_elem]``, C-contiguous.

        Returns:
            list: Per picture float32 ``[grid_h * grid_w / patch_n_merge**2, n_embd_vision]``:
            what the language model reads in the picture's place.

        Raises:
            InputError: A picture has the wrong shape.
            DecodeError, OutOfMemoryError: The native library failed. The engine stays usable,
                unless an assertion of ggml failed: then `is_open` is false.
        """
        self._enter_open()
        try:
            return _encode_vision(self, pictures)
        finally:
            self._leave()
