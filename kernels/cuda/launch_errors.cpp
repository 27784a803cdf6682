// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch_errors.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "kernels/cuda/check.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

void erase_all(std::string& text, std::string_view part) {
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
        text.erase(at, part.size());
    }
}

/// A function's name from the compiler's text, without result, namespaces and parameters. For a
/// lambda, the name of the function around it.
std::string bare_name(std::string text) {
    for (const char* part :
         {"(anonymous namespace)::", "{anonymous}::", "vocabpipe::kernels::cuda::"}) {
        erase_all(text, part);
    }
    int depth = 0;  // nesting of template arguments, which may contain ' ', ':' and '('
    size_t begin = 0;
    size_t end = 0;
    for (; end < text.size() && (depth > 0 || text[end] != '('); ++end) {
        if (text[end] == '<') ++depth;
        if (text[end] == '>') --depth;
        if (depth == 0 && (text[end] == ' ' || text[end] == ':')) begin = end + 1;
    }
    return text.substr(begin, end - begin);
}

std::string extent(dim3 size) {
    std::string text = std::to_string(size.x);
    if (size.y > 1 || size.z > 1) text += " x " + std::to_string(size.y);
    if (size.z > 1) text += " x " + std::to_string(size.z);
    return text;
}

/// The name of a kernel without namespaces and parameters, like "layer_norm_kernel<float, 4>".
std::string kernel_name(const void* kernel) {
    const char* mangled = nullptr;
    if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
        (void)cudaGetLastError();
        return "without a name";
    }
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
    return bare_name(status == 0 ? name.get() : mangled);
}

std::string describe(const CallSite& at) {
    const std::string_view file = at.where().file_name();
    return "operator " + bare_name(at.where().function_name()) + " (" +
           std::string(file.substr(file.find_last_of('/') + 1)) + ":" +
           std::to_string(at.where().line()) + ")";
}

}  // namespace

void KernelLaunch::find_name() {
    name_ = kernel_name(kernel_);
}

std::string KernelLaunch::text() const {
    return "kernel " + (name_.empty() ? kernel_name(kernel_) : name_) + ", grid " + extent(grid_) +
           ", block " + extent(block_);
}

void KernelLaunch::check_closely(cudaError_t launched) const {
    const bool synchronous = at_.cuda().synchronous();
    // A sticky error means that an earlier kernel has failed.
    if (!synchronous && is_sticky(launched)) cuda::check(launched, "cudaLaunchKernelEx");
    if (launched != cudaSuccess) {
        throw DeviceError(describe(at_) + ", " + text() +
                          ": cudaLaunchKernelEx: " + error_text(launched));
    }
    await_call(at_, text());
}

void await_call(const CallSite& at, const std::string& what) {
    const cudaError_t status = cudaStreamSynchronize(at.cuda().stream());
    if (status == cudaSuccess) return;
    throw DeviceError(describe(at) + ", " + what + ": " + error_text(status));
}

}  // namespace vocabpipe::kernels::cuda
