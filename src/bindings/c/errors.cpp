// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/argument_names.hpp"
#include "src/bindings/c/calls.hpp"
#include "vocabpipe/error.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace vocabpipe::bindings::c {

namespace {

/// As errno: there is no handle yet where making one fails.
std::string& last_error() {
    static thread_local std::string message;
    return message;
}

vp_status status_of(ExitCode code) {
    switch (code) {
        case ExitCode::usage:
            return VP_USAGE;
        case ExitCode::input_file:
            return VP_INPUT_FILE;
        case ExitCode::out_of_memory:
            return VP_OUT_OF_MEMORY;
        default:
            return VP_FAILED;
    }
}

}  // namespace

vp_status refused(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Error& error) {
        last_error() = argument_names(error.what());
        return status_of(error.exit_code());
    } catch (const std::bad_alloc&) {
        last_error() = "memory is exhausted";
        return VP_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        last_error() = error.what();
        return VP_FAILED;
    }
}

void require(const void* given, const char* name) {
    if (given == nullptr) throw UsageError(std::string(name) + ": is NULL; give a pointer");
}

void check_size(size_t given, size_t known, const char* name) {
    if (given >= sizeof(size_t) && given <= known) return;
    throw UsageError(std::string(name) + " size " + std::to_string(given) + ": must be from " +
                     std::to_string(sizeof(size_t)) + " to " + std::to_string(known) +
                     "; initialise the struct with its macro, and load a library that is not older "
                     "than the header");
}

std::string text_or(const char* text, const char* otherwise) {
    return text == nullptr ? otherwise : text;
}

char* owned_text(const std::string& text) {
    auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

}  // namespace vocabpipe::bindings::c

extern "C" {

const char* vp_version(void) {
    return VOCABPIPE_VERSION;
}

const char* vp_last_error(void) {
    return vocabpipe::bindings::c::last_error().c_str();
}

void vp_free_text(char* text) {
    std::free(text);
}

}  // extern "C"
