// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/error.hpp"

#include "src/bindings/argument_names.hpp"
#include "src/bindings/python/bindings.hpp"
#include "vocabpipe/validate.hpp"

#include <exception>
#include <string>

namespace vocabpipe::bindings::python {

namespace {

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

void bind_errors(nb::module_& module) {
    // The last translator that is registered is asked first: special ones come last.
    raise_as<Error>(module, "Error", PyExc_RuntimeError);
    raise_as<InputFileError>(module, "InputFileError", PyExc_OSError);
    raise_as<OutputFileError>(module, "OutputFileError", PyExc_OSError);
    raise_as<OutOfMemoryError>(module, "OutOfMemoryError", PyExc_MemoryError);
    raise_as<UsageError>(module, "UsageError", PyExc_ValueError);
    raise_as<ScheduleError>(module, "ScheduleError", module.attr("UsageError").ptr());
}

}  // namespace vocabpipe::bindings::python
