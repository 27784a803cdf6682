// SPDX-License-Identifier: Apache-2.0
// The compiled half of the package; vocabpipe/__init__.py is the public one.
#include "src/bindings/python/bindings.hpp"

NB_MODULE(_core, module) {
    module.doc() = "Compiled half of the package vocabpipe";
    module.attr("__version__") = VOCABPIPE_VERSION;
    vocabpipe::bindings::python::bind_errors(module);
    vocabpipe::bindings::python::bind_schedules(module);
    vocabpipe::bindings::python::bind_timelines(module);
    vocabpipe::bindings::python::bind_plans(module);
}
