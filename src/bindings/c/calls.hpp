// SPDX-License-Identifier: Apache-2.0
// What the functions of C interfaces share: errors as a status, structs of several versions.
#pragma once

#include "vocabpipe/c/vocabpipe.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace vocabpipe::bindings::c {

/// The status of what is thrown; keeps its message for vp_last_error().
[[nodiscard]] vp_status refused(const std::exception_ptr& thrown);

/// Runs `work`; what it throws becomes a status. No exception leaves the library.
template <typename Work>
[[nodiscard]] vp_status guarded(const Work& work) {
    try {
        work();
        return VP_OK;
    } catch (...) {
        return refused(std::current_exception());
    }
}

/// Throws UsageError for a NULL where something is needed.
void require(const void* given, const char* name);

/// Throws UsageError for a size that no version of the struct has.
void check_size(size_t given, size_t known, const char* name);

/// The caller's struct, of this or an earlier version, as this version's; NULL: all defaults.
template <typename Struct>
[[nodiscard]] Struct given(const Struct* from, const char* name) {
    Struct result{};
    result.size = sizeof(Struct);
    if (from == nullptr) return result;
    check_size(from->size, sizeof(Struct), name);
    const size_t size = from->size;
    std::memcpy(&result, from, size);
    result.size = sizeof(Struct);
    return result;
}

/// Fills the caller's struct with as much as its version has.
template <typename Struct>
void give(Struct* to, Struct result, const char* name) {
    require(to, name);
    check_size(to->size, sizeof(Struct), name);
    result.size = to->size;
    std::memcpy(to, &result, to->size);
}

/// A new handle of what was made.
template <typename Handle, typename Made>
void hand_over(Handle** to, Made made) {
    *to = std::make_unique<Handle>(Handle{std::move(made)}).release();
}

/// `otherwise` for NULL.
[[nodiscard]] std::string text_or(const char* text, const char* otherwise = "");

/// A copy that vp_free_text() frees.
[[nodiscard]] char* owned_text(const std::string& text);

}  // namespace vocabpipe::bindings::c
