# Memory that work would take, told before it is taken: where the system promises more than there
# is, an allocation succeeds and the process is killed later.

cdef size_t _tower_bytes(mtmd.mtmd_context *vision, vector[Picture] pictures) except? 0:
    """Of the tower's graph, at most, and of the rows of all pictures."""
    cdef vector[mtmd.mtmd_patches] group
    cdef size_t first = 0, most = 0, n_rows = 0, i
    cdef size_t n_merged
    if pictures.empty():
        return 0
    if pictures[0].pixels != NULL:
        for i in range(pictures.size()):
            n_rows += mtmd.mtmd_get_n_tokens_pixels(vision, pictures[i].grid_w, pictures[i].grid_h)
        most = mtmd.mtmd_pixels_n_bytes(vision, pictures[0].grid_w, pictures[0].grid_h)
    else:
        n_merged = mtmd.mtmd_get_patch_n_merge(vision) * mtmd.mtmd_get_patch_n_merge(vision)
        stable_sort(pictures.begin(), pictures.end(), _is_larger)
        for i in range(pictures.size()):
            n_rows += _n_patches(pictures[i]) // n_merged
        while first < pictures.size():
            first = _next_group(pictures, first, group)
            most = max(most, mtmd.mtmd_patches_n_bytes(vision, group.data(), group.size()))
    # libmtmd has a copy of the rows
    return most + 2 * n_rows * mtmd.mtmd_get_n_embd(vision) * sizeof(float)


cdef size_t _tower_more(Handles handles, const vector[Picture] &pictures) except? 0:
    """As `_tower_bytes`, less the buffers that are there."""
    cdef size_t n_patches = 0, i
    handles.wanted = handles.held
    for i in range(pictures.size()):
        n_patches += _n_patches(pictures[i])
    if n_patches <= handles.held.n_patches:
        return 0
    handles.wanted.n_patches = n_patches
    handles.wanted.n_bytes = _tower_bytes(handles.vision, pictures)
    return handles.wanted.n_bytes - min(handles.wanted.n_bytes, handles.held.n_bytes)


cdef _check_room(available, size_t n_bytes, what):
    """Raises OutOfMemoryError if so much more is not available."""
    free = available() if n_bytes and available is not None else None
    if free is not None and n_bytes > free:
        raise OutOfMemoryError(
            f"{what} needs {n_bytes / 1e6:,.0f} MB more and {free / 1e6:,.0f} MB are free"
        )
