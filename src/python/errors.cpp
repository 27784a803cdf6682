// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/error.hpp"

#include "src/python/bindings.hpp"
#include "src/tool/support/flag_names.hpp"
#include "vocabpipe/validate.hpp"

#include <exception>
#include <string_view>

namespace vocabpipe::python {

namespace {

bool of_flag(char c) {
    return (c >= 'a' && c <= 'z') || c == '-';
}

/// Throws as Python what the library threw.
template <typename Exception>
void raise_as(nb::module_& module, const char* name, PyObject* base) {
    PyObject* const type =
        PyErr_NewException((std::string("vocabpipe.") + name).c_str(), base, nullptr);
    module.attr(name) = nb::steal(type);
    nb::register_exception_translator(
        [](const std::exception_ptr& thrown, void* python_type) {
            try {
                std::rethrow_exception(thrown);
            } catch (const Exception& error) {
                PyErr_SetString(static_cast<PyObject*>(python_type),
                                argument_names(error.what()).c_str());
            }
        },
        type);
}

}  // namespace

std::string argument_names(const std::string& message) {
    const std::string flags = tool::with_flags(message, tool::Caller::vocabpipe);
    std::string text;
    for (size_t at = 0; at < flags.size();) {
        constexpr std::string_view kSchedule = "SCHEDULE ";
        const std::string_view rest = std::string_view(flags).substr(at);
        const bool begins = at == 0 || flags[at - 1] == ' ' || flags[at - 1] == '(';
        if (begins && rest.starts_with(kSchedule)) {
            text += "name ";
            at += kSchedule.size();
            continue;
        }
        if (!begins || !rest.starts_with("--")) {
            text += flags[at++];
            continue;
        }
        size_t end = at + 2;
        while (end < flags.size() && of_flag(flags[end])) ++end;
        std::string name = flags.substr(at + 2, end - at - 2);
        for (char& c : name) c = c == '-' ? '_' : c;
        text += name == "pp" ? "ranks" : name;
        at = end;
    }
    return text;
}

void bind_errors(nb::module_& module) {
    // The last translator that is registered is asked first: special ones come last.
    raise_as<Error>(module, "Error", PyExc_RuntimeError);
    raise_as<InputFileError>(module, "InputFileError", PyExc_OSError);
    raise_as<OutputFileError>(module, "OutputFileError", PyExc_OSError);
    raise_as<OutOfMemoryError>(module, "OutOfMemoryError", PyExc_MemoryError);
    raise_as<UsageError>(module, "UsageError", PyExc_ValueError);
    raise_as<ScheduleError>(module, "ScheduleError", module.attr("UsageError").ptr());
}

}  // namespace vocabpipe::python
