"""A task of the user's own, named in the recipe as `module:Class`."""

import importlib
import sys

from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import UnmaskError, nearest
from unmask.models.files import one_line
from unmask.tasks.task import Task


class CustomTaskSettings(BaseModel):
    """A `Task` subclass that Python can import, also from the folder that the command was started in."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(pattern=r"^\w+(\.\w+)*:\w+$")
    """`module:Class`, e.g. `my_tasks:Parity`."""

    def build(self) -> Task:
        """The task.

        Raises:
            UnmaskError: no such module or class, or the class is no `Task`.
        """
        module_name, class_name = self.name.split(":")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise UnmaskError(
                    f"task.name={self.name}: {module_name} imports {error.name}, which is missing"
                ) from error
            raise UnmaskError(f"task.name={self.name}: there is no module {module_name} here or installed") from error
        except (Exception, SystemExit) as error:  # a border: whatever a user's file raises
            raise UnmaskError(f"task.name={self.name}: importing {module_name} failed: {one_line(error)}") from error
        found = getattr(module, class_name, None)
        if found is None:
            classes = [
                key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Task)
            ]
            raise UnmaskError(f"task.name={self.name}: {module_name} has no {class_name}{nearest(class_name, classes)}")
        if not (isinstance(found, type) and issubclass(found, Task)):
            raise UnmaskError(f"task.name={self.name}: {class_name} is not a subclass of unmask.Task")
        if found.__abstractmethods__:
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise UnmaskError(f"task.name={self.name}: {class_name} does not define {missing}")
        try:
            return found()
        except UnmaskError:
            raise
        except TypeError as error:
            raise UnmaskError(
                f"task.name={self.name}: {class_name}() failed: {error}; it is made without arguments"
            ) from error
        except (Exception, SystemExit) as error:
            raise UnmaskError(f"task.name={self.name}: {class_name}() failed: {one_line(error)}") from error
