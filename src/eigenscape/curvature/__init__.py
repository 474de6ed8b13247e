"""A module, a loss and data become operators: Hessian, GGN, functional Hessian, Fisher, NTK."""
