// SPDX-License-Identifier: Apache-2.0
#include "kernels/null/operators.hpp"

#include "kernels/null/checks.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe::kernels::null {

namespace {

template <typename Name, typename Function>
struct NotImplemented;
template <typename Name, typename Result, typename... Arguments>
struct NotImplemented<Name, Result(Arguments...)> {
    static Result call(Arguments... arguments) {
        try {
            check(Name(), arguments...);
        } catch (const UsageError& error) {
            throw UsageError(std::string(Name::text) + ": " + error.what());
        }
        throw DeviceError(std::string("operator ") + Name::text +
                          " is not implemented on the device null");
    }
};

constexpr Operators kNotImplemented{
#define VOCABPIPE_OPERATOR(name) \
    .name = NotImplemented<names::name, FunctionOf<&Operators::name>>::call,
#include "kernels/operator_list.inc"
};

}  // namespace

const Operators& operators() {
    static constexpr Operators kTable = [] {
        Operators table = kNotImplemented;
        // An operator that is written takes its place here: table.add = add;
        return table;
    }();
    return kTable;
}

}  // namespace vocabpipe::kernels::null
