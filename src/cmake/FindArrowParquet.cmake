# SPDX-License-Identifier: Apache-2.0
# Apache Arrow C++ and Parquet as the pyarrow wheel brings them: headers, and libraries whose names end
# in the version of their ABI. VOCABPIPE_PYARROW names the wheel's folder; empty: that of python3.
set(VOCABPIPE_PYARROW "" CACHE PATH "Folder of the pyarrow package, with include/ and libarrow.so.*")
set(_pyarrow "${VOCABPIPE_PYARROW}")
if(NOT _pyarrow)
  find_program(ArrowParquet_PYTHON python3)
  mark_as_advanced(ArrowParquet_PYTHON)
  if(ArrowParquet_PYTHON)
    execute_process(COMMAND "${ArrowParquet_PYTHON}" -c "import pyarrow; print(pyarrow.__path__[0])"
                    OUTPUT_VARIABLE _pyarrow OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
set(ArrowParquet_INCLUDE_DIR "")
set(ArrowParquet_LIBRARIES "")
if(_pyarrow AND EXISTS "${_pyarrow}/include/parquet/arrow/reader.h")
  set(ArrowParquet_INCLUDE_DIR "${_pyarrow}/include")
  foreach(_library IN ITEMS parquet arrow)
    file(GLOB _found "${_pyarrow}/lib${_library}.so.*")
    list(FILTER _found INCLUDE REGEX "\\.so\\.[0-9]+$")
    if(_found)
      list(GET _found -1 _newest)
      list(APPEND ArrowParquet_LIBRARIES "${_newest}")
    endif()
  endforeach()
  list(LENGTH ArrowParquet_LIBRARIES _count)
  if(NOT _count EQUAL 2)
    set(ArrowParquet_LIBRARIES "")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowParquet
                                  REQUIRED_VARS ArrowParquet_LIBRARIES ArrowParquet_INCLUDE_DIR)
if(ArrowParquet_FOUND AND NOT TARGET ArrowParquet::parquet)
  list(GET ArrowParquet_LIBRARIES 0 _parquet)
  list(GET ArrowParquet_LIBRARIES 1 _arrow)
  add_library(ArrowParquet::parquet UNKNOWN IMPORTED)
  set_target_properties(ArrowParquet::parquet PROPERTIES
    IMPORTED_LOCATION "${_parquet}"
    INTERFACE_INCLUDE_DIRECTORIES "${ArrowParquet_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${_arrow}")
endif()
