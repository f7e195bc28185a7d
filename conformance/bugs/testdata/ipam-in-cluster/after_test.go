package bug
