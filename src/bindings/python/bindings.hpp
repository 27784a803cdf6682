// SPDX-License-Identifier: Apache-2.0
// What the files of the module `vocabpipe._core` share: each binds one concept.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::bindings::python {

namespace nb = nanobind;

/// Passes, schedules, generators, files of schedules, validation.
void bind_schedules(nb::module_& module);
/// Simulated and recorded steps: times, causes, pictures.
void bind_timelines(nb::module_& module);
/// Plans of training steps.
void bind_plans(nb::module_& module);
/// Exceptions, with the messages of argument_names().
void bind_errors(nb::module_& module);

/// A column of a table, as a numpy array that owns the values.
template <typename Value>
[[nodiscard]] nb::ndarray<nb::numpy, Value, nb::ndim<1>> column(const std::vector<Value>& values) {
    auto* const owned = new Value[values.size()];
    std::copy(values.begin(), values.end(), owned);
    const nb::capsule owner(owned, [](void* data) noexcept { delete[] static_cast<Value*>(data); });
    return {owned, {values.size()}, owner};
}

}  // namespace vocabpipe::bindings::python
